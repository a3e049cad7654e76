package commands

import (
	"context"
	"strings"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/output"
)

// newPods lists pod sandboxes in every state.
func newPods(env *Env) *cli.Command {
	return &cli.Command{
		Name:  "pods",
		Usage: "list pods",
		Description: describe("Pod sandboxes in every state, newest first.",
			"crishim pods", "crishim pods --state ready -q", "crishim pods --namespace '^kube-system$' -o wide"),
		Flags: append(append(listFlags(output.PodColumns), podFilterFlags()...),
			&cli.StringFlag{Name: "id", Usage: "pods whose id begins with `ID`"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "more columns, as -o wide"},
		),
		Action: action(env, podsOptionsOf, runPods),
	}
}

type podsOptions struct {
	filter podFilter
	output output.Options
}

func podsOptionsOf(env *Env, c *cli.Context) (o podsOptions, err error) {
	if err = noArgs(c); err != nil {
		return o, err
	}
	if o.filter, err = readPodFilter(c); err != nil {
		return o, err
	}
	o.output, err = readListFormat(env, c, output.PodColumns)
	return o, err
}

func runPods(ctx context.Context, env *Env, o podsOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pods, err := o.filter.list(ctx, conn)
	if err != nil {
		return err
	}
	return output.Pods(env.Out, &runtimeapi.ListPodSandboxResponse{Items: pods}, o.output)
}

// podFilter chooses pods by what flags say of them.
type podFilter struct {
	id              string
	name, namespace pattern
	labels          map[string]string
	selector        client.Selector
	state           *runtimeapi.PodSandboxState // nil: any
	newest          int                         // -1: all
}

func podFilterFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "name", Usage: "pods whose name matches `REGEX`"},
		&cli.StringFlag{Name: "namespace", Usage: "pods whose namespace matches `REGEX`"},
		&cli.StringFlag{Name: "state", Aliases: []string{"s"}, Usage: "pods in `STATE`: ready, notready"},
		&cli.StringSliceFlag{Name: "label", Usage: "pods with the label `KEY=VALUE`, or KEY for any value; several must all match"},
		selectorFlag(),
	}, recencyFlags()...)
}

func readPodFilter(c *cli.Context) (f podFilter, err error) {
	f.id = c.String("id")
	if f.name, err = readPattern(c, "name"); err != nil {
		return f, err
	}
	if f.namespace, err = readPattern(c, "namespace"); err != nil {
		return f, err
	}
	if f.labels, f.selector, err = readLabelFilter(c); err != nil {
		return f, err
	}
	if f.newest, err = recency(c); err != nil {
		return f, err
	}
	state, given, err := oneOf(c, "state", podStates())
	if given && f.newest < 0 {
		f.state = &state
	}
	return f, err
}

func (f podFilter) request() *runtimeapi.ListPodSandboxRequest {
	filter := &runtimeapi.PodSandboxFilter{LabelSelector: bothLabels(f.labels, f.selector)}
	if f.state != nil {
		filter.State = &runtimeapi.PodSandboxStateValue{State: *f.state}
	}
	return &runtimeapi.ListPodSandboxRequest{Filter: filter}
}

func (f podFilter) matches(p *runtimeapi.PodSandbox) bool {
	return strings.HasPrefix(p.GetId(), f.id) &&
		(f.state == nil || p.GetState() == *f.state) &&
		f.name.matches(p.GetMetadata().GetName()) &&
		f.namespace.matches(p.GetMetadata().GetNamespace()) &&
		hasLabels(p.GetLabels(), f.labels) && f.selector.Matches(p.GetLabels())
}

func (f podFilter) list(ctx context.Context, conn *client.Conn) ([]*runtimeapi.PodSandbox, error) {
	res, err := conn.Runtime.ListPodSandbox(ctx, f.request())
	if err != nil {
		return nil, err
	}
	var kept []*runtimeapi.PodSandbox
	for _, p := range res.GetItems() {
		if f.matches(p) {
			kept = append(kept, p)
		}
	}
	return newest(kept, f.newest), nil
}
