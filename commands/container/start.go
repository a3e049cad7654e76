package container

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
)

type startOptions struct{ cli.Targets }

func NewStart(in *cli.Invocation) *cli.Verb {
	o := &startOptions{cli.Targets{PassUnknown: true}}
	return &cli.Verb{
		Usage:       "Start created containers",
		ArgsUsage:   "CONTAINER...",
		Args:        cli.CompleteContainers("created"),
		Description: cli.WithExamples("Starts containers that crishim create has created, and prints their names as given.", "crishim start web"),
		Flags:       []urfave.Flag{cli.SelectorFlag(&o.Selector, "l"), o.NamespaceFlag(), cli.AttemptFlag(&o.Attempt)},
		Check:       o.Check,
		RunOn:       o.run,
	}
}

func (o *startOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.NewestAttempt, "created")
	failed := false
	return cli.Batch[*runtimeapi.Container]{
		What: "created container", InTurn: true,
		// crictl stops at the first failure.
		Skip: func(*cli.Printer, cli.ContainerTarget) (bool, error) { return printer.Compat && failed, nil },
		Do: func(printer *cli.Printer, c cli.ContainerTarget) error {
			_, err := conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.Object.GetId()})
			failed = failed || err != nil
			if err != nil && !printer.Compat && c.Object.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
				err = cli.WithHint(err, "it has ended, and CRI starts a container once; `crishim restart %s` runs it again", shellwords.Quote(c.Arg()))
			}
			return err
		},
		Done: "%s",
	}.Run(printer, &o.Targets, containers, err)
}
