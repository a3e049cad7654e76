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

// newStop ends containers.
func newStop(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "stop",
		Usage:     "stop containers",
		ArgsUsage: "CONTAINER...",
		Description: describe("Asks containers to end and kills those that have not after the grace period of 10 seconds.",
			"crishim stop web", "crishim stop -t 0 web", "crishim stop --all", "crishim stop --selector app=web"),
		Flags: []cli.Flag{
			durationFlag("timeout", "t", "the grace period: 30, 30s; 0 kills at once (default 10s)"),
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "every running container"},
			selectorFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be stopped"},
		},
		Action: action(env, stopOptionsOf, runStop),
	}
}

type stopOptions struct {
	choice choice
	grace  time.Duration
	dryRun bool
}

func stopOptionsOf(env *Env, c *cli.Context) (o stopOptions, err error) {
	o.grace, o.dryRun = defaultGrace, c.Bool("dry-run")
	if env.compat {
		o.grace = 0
	}
	if c.IsSet("timeout") {
		o.grace = durationOf(c, "timeout")
	}
	if o.grace < 0 {
		return o, usagef("--timeout %s: want a time that is not negative", o.grace)
	}
	o.choice, err = readChoice(c)
	o.choice.passOn = env.compat
	return o, err
}

func (o stopOptions) request(id string) *runtimeapi.StopContainerRequest {
	return &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(math.Ceil(o.grace.Seconds()))}
}

func runStop(ctx context.Context, env *Env, o stopOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	running := runtimeapi.ContainerState_CONTAINER_RUNNING
	containers, failed := o.choice.containers(ctx, conn, client.PreferRunning, &running)
	if failed == nil {
		o.choice.warnOfNone(env, "running container", len(containers))
	}
	if o.choice.all && !o.dryRun && failed == nil {
		announce(env, "stopping", "container", containers)
	}
	return join(failed, inParallel(env, containers, func(env *Env, c target[*runtimeapi.Container]) error {
		if o.dryRun {
			return env.say("Would stop %s", c.called())
		}
		if _, err := conn.Runtime.StopContainer(ctx, o.request(c.thing.GetId())); err != nil {
			return about(c.called(), err)
		}
		return env.say("%s", c.ref)
	}))
}
