package container

import (
	"context"
	"errors"
	"strings"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/api"
)

type pauseOptions struct {
	cli.Targets
	verb string
	tool string // subcommand of ctr task and runc
}

// NewPause returns the verb that freezes containers. CRI has no call for it.
func NewPause(in *cli.Invocation) *cli.Verb {
	o := &pauseOptions{verb: "pause", tool: "pause"}
	return &cli.Verb{
		Usage:     "Pause all processes in containers",
		ArgsUsage: "CONTAINER...",
		Args:      cli.CompleteContainers("running"),
		Description: cli.WithExamples("Freezes all processes of containers until crishim unpause. CRI reports a paused container as running;\n"+
			"ps shows it as Paused. stop and rm -f end it; exec in it fails. Only crishim's dockershim can pause containers.",
			"crishim pause web", "crishim pause --selector app=web"),
		Flags: o.flags(),
		Check: o.Check,
		RunOn: o.run,
	}
}

func NewUnpause(in *cli.Invocation) *cli.Verb {
	o := &pauseOptions{verb: "unpause", tool: "resume"}
	return &cli.Verb{
		Usage:     "Unpause all processes in containers",
		ArgsUsage: "CONTAINER...",
		Args:      cli.CompleteContainers("running"),
		Description: cli.WithExamples("Resumes the processes of paused containers. Only crishim's dockershim can pause containers.",
			"crishim unpause web", "crishim unpause --selector app=web"),
		Flags: o.flags(),
		Check: o.Check,
		RunOn: o.run,
	}
}

func (o *pauseOptions) flags() []urfave.Flag {
	return []urfave.Flag{o.AllFlag("Apply to all running containers"), cli.SelectorFlag(&o.Selector), o.NamespaceFlag(), o.DryRunFlag(o.verb + "d")}
}

func (o *pauseOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.RunningAttempt, "running")
	return cli.Batch[*runtimeapi.Container]{
		What: "running container", Doing: strings.TrimSuffix(o.verb, "e") + "ing",
		Would: func(c cli.ContainerTarget) string { return "Would " + o.verb + " " + c.Called() },
		Do: func(_ *cli.Printer, c cli.ContainerTarget) error {
			_, err := conn.Crishim().PauseContainer(ctx, &api.PauseContainerRequest{ContainerId: c.Object.GetId(), Unpause: o.verb == "unpause"})
			if errors.Is(err, client.ErrNotDockershim) {
				return onlyOurShim(conn, "CRI cannot "+o.verb+" containers", o.tool+" "+c.Object.GetId(), o.tool+" "+c.Object.GetId())
			}
			return err
		},
		Done: "%s",
	}.Run(printer, &o.Targets, containers, err)
}
