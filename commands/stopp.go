package commands

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newStopp stops pods and with them their containers.
func newStopp(env *Env) *cli.Command {
	return &cli.Command{
		Name:        "stopp",
		Usage:       "stop pods",
		ArgsUsage:   "POD...",
		Description: describe("Stops a pod's containers and takes its network down. A stopped pod stays as it is.", "crishim stopp web"),
		Flags:       []cli.Flag{selectorFlag()},
		Action:      action(env, choiceOf, runStopp),
	}
}

func choiceOf(env *Env, c *cli.Context) (choice, error) {
	o, err := readChoice(c)
	o.passOn = env.compat
	return o, err
}

func runStopp(ctx context.Context, env *Env, o choice) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pods, failed := o.pods(ctx, conn)
	return join(failed, inParallel(env, pods, func(env *Env, p target[*runtimeapi.PodSandbox]) error {
		return stopPod(ctx, env, conn, p.thing.GetId(), p.ref)
	}))
}

func stopPod(ctx context.Context, env *Env, conn *client.Conn, id, ref string) error {
	if _, err := conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		return about(ref, err)
	}
	return env.say("Stopped sandbox %s", ref)
}

// about says which argument an error is on, where the error does not.
func about(ref string, err error) error { return fmt.Errorf("%s: %w", ref, err) }

// isGone says that what should be removed is not there any more.
func isGone(err error) bool { return status.Code(err) == codes.NotFound }
