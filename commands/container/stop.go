package container

import (
	"context"
	"math"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kuberuntime/pod"
)

const defaultGrace = 10 * time.Second

type stopOptions struct {
	cli.Targets
	grace time.Duration
	dirs  pod.Dirs
}

func NewStop(in *cli.Invocation) *cli.Verb {
	o := &stopOptions{Targets: cli.Targets{PassUnknown: true}, grace: defaultGrace, dirs: in.PodDirs()}
	return &cli.Verb{
		Usage:     "Stop containers",
		ArgsUsage: "CONTAINER...",
		Args:      cli.CompleteContainers(),
		Description: cli.WithExamples("Sends containers their stop signal, and kills containers that have not ended after the grace period.",
			"crishim stop web", "crishim stop -t 0 web", "crishim stop --all", "crishim stop --selector app=web"),
		Flags: []urfave.Flag{
			cli.DurationFlag(&o.grace, "timeout", "Wait `DURATION` before killing containers: 30, 30s; 0 kills at once", "t"),
			o.AllFlag("Stop all running containers"),
			cli.SelectorFlag(&o.Selector, "l"),
			o.NamespaceFlag(),
			o.DryRunFlag("stopped"),
		},
		Check: o.check,
		RunOn: o.run,
	}
}

func (o *stopOptions) check(in *cli.Invocation, c *urfave.Context) error {
	if in.Compat && !c.IsSet("timeout") {
		o.grace = 0
	}
	return o.Targets.Check(in, c)
}

func (o *stopOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.PreferRunning, "running")
	return cli.Batch[*runtimeapi.Container]{
		What: "running container", Doing: "stopping",
		Would: func(c cli.ContainerTarget) string { return "Would stop " + c.Called() },
		Do: func(printer *cli.Printer, c cli.ContainerTarget) error {
			began, asked := printer.Now(), ctx.Err() == nil
			_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
				ContainerId: c.Object.GetId(), Timeout: int64(math.Ceil(o.grace.Seconds())),
			})
			// After an interrupt the container may still end: Docker and CRI-O complete the stop. containerd has sent
			// the stop signal, but does not kill the container after the grace period.
			if err == nil || asked && ctx.Err() != nil {
				cli.RecordEnd(printer, o.dirs, conn, c.Object, "crishim stop", began, o.grace)
			}
			return err
		},
		Done: "%s",
	}.Run(printer, &o.Targets, containers, err)
}
