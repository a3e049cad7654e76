package container

import (
	"context"
	"math"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

const defaultGrace = 10 * time.Second

type stopOptions struct {
	cli.Targets
	grace time.Duration
}

func NewStop(env *cli.Env) *cli.Verb {
	o := &stopOptions{Targets: cli.Targets{PassUnknown: true}, grace: defaultGrace}
	return &cli.Verb{
		Name:      "stop",
		Usage:     "stop containers",
		ArgsUsage: "CONTAINER...",
		Args:      cli.Containers(),
		Description: cli.WithExamples("Sends containers their stop signal, and kills those that have not ended after the grace period (10s).",
			"crishim stop web", "crishim stop -t 0 web", "crishim stop --all", "crishim stop --selector app=web"),
		Flags: []urfave.Flag{
			cli.DurationFlag(&o.grace, "timeout", "grace period: 30, 30s; 0 kills at once", "t"),
			o.AllFlag("stop all running containers"),
			cli.SelectorFlag(&o.Selector, "l"),
			o.NamespaceFlag(),
			o.DryRunFlag("stopped"),
		},
		Action: env.Connected(o.check, o.run),
	}
}

func (o *stopOptions) check(env *cli.Env, c *urfave.Context) error {
	if env.Compat && !c.IsSet("timeout") {
		o.grace = 0
	}
	return o.Targets.Check(env, c)
}

func (o *stopOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.PreferRunning, "running")
	return cli.Batch[*runtimeapi.Container]{
		What: "running container", Doing: "stopping",
		Would: func(c cli.ContainerTarget) string { return "Would stop " + c.Called() },
		Do: func(env *cli.Env, c cli.ContainerTarget) error {
			env.RecordEnd(conn, c.Object, "crishim stop")
			_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
				ContainerId: c.Object.GetId(), Timeout: int64(math.Ceil(o.grace.Seconds())),
			})
			return err
		},
		Done: "%s",
	}.Run(env, &o.Targets, containers, err)
}
