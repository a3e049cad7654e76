package pod

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

type stoppOptions struct{ cli.Targets }

func NewStopp(in *cli.Invocation) *cli.Verb {
	o := &stoppOptions{cli.Targets{PassUnknown: true}}
	return &cli.Verb{
		Usage:       "Stop pods",
		ArgsUsage:   "POD...",
		Args:        cli.CompletePods,
		Description: cli.WithExamples("Stops the containers of pods and removes the pods' networks. A pod that is already stopped is a success.", "crishim stopp web", "crishim stopp --selector app=web --dry-run"),
		Flags:       []urfave.Flag{cli.SelectorFlag(&o.Selector, "l"), o.NamespaceFlag(), o.DryRunFlag("stopped")},
		Check:       o.Check,
		RunOn:       o.run,
	}
}

func (o *stoppOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	pods, err := o.Pods(ctx, conn)
	return cli.Batch[*runtimeapi.PodSandbox]{
		What:  "pod",
		Would: func(p cli.PodTarget) string { return "Would stop sandbox " + p.Called() },
		Do:    func(printer *cli.Printer, p cli.PodTarget) error { return stopPod(ctx, printer, conn, p) },
	}.Run(printer, &o.Targets, pods, err)
}

func stopPod(ctx context.Context, printer *cli.Printer, conn *client.Conn, p cli.PodTarget) error {
	if _, err := conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.Object.GetId()}); err != nil {
		return err
	}
	return printer.Say("Stopped sandbox %s", p.Ref)
}
