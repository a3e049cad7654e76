package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

type startOptions struct{ targets }

// newStart starts containers that were created.
func newStart(env *Env) *cli.Command {
	o := &startOptions{targets{passOn: true}}
	return &cli.Command{
		Name:        "start",
		Usage:       "start containers",
		ArgsUsage:   "CONTAINER...",
		Description: describe("Starts containers that create made, and prints what was named.", "crishim start web"),
		Flags:       []cli.Flag{selectorFlag(&o.selector), attemptFlag(&o.attempt)},
		Action:      env.connected(o.check, o.run),
	}
}

func (o *startOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	containers, err := o.containers(ctx, conn, client.Any, "created")
	return batch[*runtimeapi.Container]{
		what: "created container", inTurn: true,
		do: func(env *Env, c containerTarget) error {
			if _, err := conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.thing.GetId()}); err != nil {
				return err
			}
			return env.say("%s", c.ref)
		},
	}.run(env, &o.targets, containers, err)
}
