package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// Args completes the arguments of a verb. The verb declares it next to its flags.
type Args func(context.Context, *completion) []candidate

// candidate is a completion, with a text that some shells show.
type candidate struct{ value, text string }

// completeFiles makes the shell complete file names itself.
const completeFiles = ":files"

// completion is the context of the word to complete.
type completion struct {
	connector *Connector
	conn      *client.Conn // nil until a name is looked up, or if there is no runtime
	now       func() time.Time
	args      []string        // arguments of the verb before the word to complete
	given     map[string]bool // flags before the word to complete
	word      string
}

func (c *completion) listPods(ctx context.Context) []*runtimeapi.PodSandbox {
	if !c.connect(ctx) {
		return nil
	}
	r, _ := c.conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	return r.GetItems()
}

// connect connects without debug lines and retries, and reports whether there is a runtime.
func (c *completion) connect(ctx context.Context) bool {
	if c.conn != nil {
		return true
	}
	o, err := c.connector.ClientOptions()
	if err != nil {
		return false
	}
	o.Debug, o.MaxRetries = nil, 0
	c.conn, err = client.Connect(ctx, o)
	return err == nil
}

func (c *completion) age(created int64) string {
	return c.now().Sub(time.Unix(0, created)).Round(time.Second).String() + " old"
}

func named(values []string) []candidate {
	var out []candidate
	for _, v := range values {
		out = append(out, candidate{v, ""})
	}
	return out
}

func sorted(list []candidate) []candidate {
	slices.SortStableFunc(list, func(a, b candidate) int { return strings.Compare(a.value, b.value) })
	return list
}
