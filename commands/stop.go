package commands

import (
	"context"
	"math"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// defaultGrace is how long a container has to end by itself.
const defaultGrace = 10 * time.Second

type stopOptions struct {
	targets
	grace time.Duration
}

// newStop ends containers.
func newStop(env *Env) *cli.Command {
	o := &stopOptions{targets: targets{passOn: true}, grace: defaultGrace}
	return &cli.Command{
		Name:      "stop",
		Usage:     "stop containers",
		ArgsUsage: "CONTAINER...",
		Description: describe("Asks containers to end and kills those that have not after the grace period of 10 seconds.",
			"crishim stop web", "crishim stop -t 0 web", "crishim stop --all", "crishim stop --selector app=web"),
		Flags: []cli.Flag{
			durationFlag(&o.grace, "timeout", "grace period: 30, 30s; 0 kills at once", "t"),
			o.allFlag("every running container"),
			selectorFlag(&o.selector),
			o.dryRunFlag("stopped"),
		},
		Action: env.connected(o.check, o.run),
	}
}

func (o *stopOptions) check(env *Env, c *cli.Context) error {
	if env.compat && !c.IsSet("timeout") {
		o.grace = 0
	}
	return o.targets.check(env, c)
}

func (o *stopOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	containers, err := o.containers(ctx, conn, client.PreferRunning, "running")
	return batch[*runtimeapi.Container]{
		what: "running container", doing: "stopping",
		would: func(c containerTarget) string { return "Would stop " + c.called() },
		do: func(env *Env, c containerTarget) error {
			_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{
				ContainerId: c.thing.GetId(), Timeout: int64(math.Ceil(o.grace.Seconds())),
			})
			if err != nil {
				return err
			}
			return env.say("%s", c.ref)
		},
	}.run(env, &o.targets, containers, err)
}
