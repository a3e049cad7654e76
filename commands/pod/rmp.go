package pod

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

type rmpOptions struct{ cli.RemoveOptions }

func NewRmp(in *cli.Invocation) *cli.Verb {
	o := &rmpOptions{}
	return &cli.Verb{
		Usage:     "Remove pods",
		ArgsUsage: "POD...",
		Args:      cli.CompletePods,
		Description: cli.WithExamples("Removes pods and all their containers. A running pod is refused unless --force stops it first.",
			"crishim rmp web", "crishim rmp -f web", "crishim rmp --all --force"),
		Flags: []urfave.Flag{
			o.ForceFlag("Stop running pods first"),
			o.AllFlag("Remove all pods of the runtime"),
			cli.SelectorFlag(&o.Selector, "l"),
			o.NamespaceFlag(),
			o.DryRunFlag("removed"),
		},
		Check: o.Check,
		RunOn: o.run,
	}
}

func (o *rmpOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	pods, err := o.Pods(ctx, conn)
	ready := func(p cli.PodTarget) bool {
		return p.Object.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return cli.Batch[*runtimeapi.PodSandbox]{
		What: "pod", Doing: "removing",
		Would: func(p cli.PodTarget) string { return "Would remove sandbox " + p.Called() },
		Skip: func(printer *cli.Printer, p cli.PodTarget) (bool, error) {
			if o.Force || !ready(p) {
				return false, nil
			}
			return true, o.Refuse(printer, "pod", "sandbox ", p.Called(), "`crishim stopp %s` stops it, `crishim rmp -f %[1]s` does both")
		},
		Do: func(printer *cli.Printer, p cli.PodTarget) error {
			if ready(p) {
				if err := stopPod(ctx, printer, conn, p); cli.UnlessGone(err) != nil {
					return err
				}
			}
			_, err := conn.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.Object.GetId()})
			if cli.UnlessGone(err) != nil {
				return err
			}
			return cli.RemoveOwnLogs(conn, p.Object.GetMetadata())
		},
		Done: "Removed sandbox %s",
	}.Run(printer, &o.Targets, pods, err)
}
