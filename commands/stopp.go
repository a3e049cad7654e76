package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

type stoppOptions struct{ targets }

// newStopp stops pods and with them their containers.
func newStopp(env *Env) *cli.Command {
	o := &stoppOptions{targets{passOn: true}}
	return &cli.Command{
		Name:        "stopp",
		Usage:       "stop pods",
		ArgsUsage:   "POD...",
		Description: describe("Stops a pod's containers and takes its network down. A stopped pod stays as it is.", "crishim stopp web", "crishim stopp --selector app=web --dry-run"),
		Flags:       []cli.Flag{selectorFlag(&o.selector), o.dryRunFlag("stopped")},
		Action:      env.connected(o.check, o.run),
	}
}

func (o *stoppOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	pods, err := o.pods(ctx, conn)
	return batch[*runtimeapi.PodSandbox]{
		what:  "pod",
		would: func(p podTarget) string { return "Would stop sandbox " + p.called() },
		do: func(env *Env, p podTarget) error {
			return stopPod(ctx, env, conn, p)
		},
	}.run(env, &o.targets, pods, err)
}

func stopPod(ctx context.Context, env *Env, conn *client.Conn, p podTarget) error {
	if _, err := conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.thing.GetId()}); err != nil {
		return err
	}
	return env.say("Stopped sandbox %s", p.ref)
}
