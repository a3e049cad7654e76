package container

import (
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// TestStopAllAnnounces what it stops before it does.
func TestStopAllAnnounces(t *testing.T) {
	stub := stubcri.Start(t, stubcri.Options{})
	pod := stub.AddPod("default", "web")
	stub.AddContainer(pod, "app")
	stub.AddContainer(pod, "proxy")
	var out, errOut test.Buffer
	env := (&cli.Env{Out: &out, Err: &errOut, Now: time.Now, LookupEnv: func(string) (string, bool) { return "", false }}).Fresh(false)
	o := &stopOptions{Targets: cli.Targets{All: true}}
	if err := o.run(t.Context(), env, connect(t, stub)); err != nil {
		t.Fatal(err)
	}
	if got := errOut.String(); !strings.HasPrefix(got, "stopping 2 containers:\n  default/web/") {
		t.Errorf("got %q", got)
	}
}
