package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newStart starts containers that were created.
func newStart(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "start",
		Usage:       "start containers",
		ArgsUsage:   "CONTAINER...",
		Description: describe("Starts containers that create made, and prints what was named.", "crishim start web"),
		Flags:       []cli.Flag{selectorFlag(), attemptFlag()},
		Action:      action(env, choiceOf, runStart),
	}
}

// runStart starts one after the other: the order of arguments may matter.
func runStart(ctx context.Context, env *Env, o choice) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	created := runtimeapi.ContainerState_CONTAINER_CREATED
	containers, failed := o.containers(ctx, conn, client.Any, &created)
	if failed == nil {
		o.warnOfNone(env, "created container", len(containers))
	}
	errs := []error{failed}
	for _, c := range containers {
		if _, err := conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.thing.GetId()}); err != nil {
			errs = append(errs, about(c.ref, err))
			continue
		}
		errs = append(errs, env.say("%s", c.ref))
	}
	return join(errs...)
}
