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
		Description: describe("Stops a pod's containers and takes its network down. A stopped pod stays as it is.", "crishim stopp web", "crishim stopp --selector app=web --dry-run"),
		Flags:       []cli.Flag{selectorFlag(), &cli.BoolFlag{Name: "dry-run", Usage: "say what would be stopped"}},
		Action:      action(env, stoppOptionsOf, runStopp),
	}
}

type stoppOptions struct {
	choice choice
	dryRun bool
}

func stoppOptionsOf(env *Env, c *cli.Context) (o stoppOptions, err error) {
	o.dryRun = c.Bool("dry-run")
	o.choice, err = choiceOf(env, c)
	return o, err
}

func choiceOf(env *Env, c *cli.Context) (choice, error) {
	o, err := readChoice(c)
	o.passOn = env.compat
	return o, err
}

func runStopp(ctx context.Context, env *Env, o stoppOptions) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pods, failed := o.choice.pods(ctx, conn)
	if failed == nil {
		o.choice.warnOfNone(env, "pod", len(pods))
	}
	return join(failed, inParallel(env, pods, func(env *Env, p target[*runtimeapi.PodSandbox]) error {
		if o.dryRun {
			return env.say("Would stop sandbox %s", p.called())
		}
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
