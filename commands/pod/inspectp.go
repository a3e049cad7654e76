package pod

import (
	"cmp"
	"context"
	"slices"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/output"
)

type inspectpOptions struct {
	refs   []string
	filter cli.Filter
	quiet  bool
	view   cli.View
}

func NewInspectp(in *cli.Invocation) *cli.Verb {
	o := &inspectpOptions{}
	return &cli.Verb{
		Usage:     "Show detailed information on pods",
		ArgsUsage: "[POD...]",
		Args:      cli.CompletePods,
		Description: cli.WithExamples("Shows pods by name, namespace/name or ID; without arguments, the pods that the filters choose.\nOne pod is an object, several are an array.",
			"crishim inspectp web", "crishim inspectp web -o go-template='{{.status.network.ip}}'"),
		Flags: slices.Concat(o.view.Flags(), o.filter.PodFlags(in), []urfave.Flag{cli.DetailsFlag(&o.quiet)}),
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *inspectpOptions) check(in *cli.Invocation, c *urfave.Context) error {
	o.refs = c.Args().Slice()
	return cmp.Or(o.filter.Check(false), o.view.Check(in))
}

func (o *inspectpOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) (failed error) {
	var pods []*runtimeapi.PodSandbox
	if len(o.refs) == 0 {
		pods, failed = o.filter.Pods(ctx, conn)
	}
	failed = cli.Join(failed, cli.Each(o.refs, func(ref string) error {
		pod, err := conn.PodOf(ctx, o.filter.In.Query(ref, client.NewestAttempt))
		if err == nil {
			pods = append(pods, pod)
		}
		return err
	}))
	return cli.ShowEach(printer, o.view, output.InspectPods, pods, len(o.refs) == 0, failed, func(p *runtimeapi.PodSandbox) (*runtimeapi.PodSandboxStatusResponse, error) {
		return conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId(), Verbose: !o.quiet})
	})
}
