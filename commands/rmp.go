package commands

import (
	"context"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

type rmpOptions struct{ removal }

// newRmp removes pods with their containers.
func newRmp(env *Env) *cli.Command {
	o := &rmpOptions{}
	return &cli.Command{
		Name:      "rmp",
		Usage:     "remove pods",
		ArgsUsage: "POD...",
		Description: describe("Removes pods and all their containers. A pod that still runs is refused unless --force stops it first.",
			"crishim rmp web", "crishim rmp -f web", "crishim rmp --all --force"),
		Flags: []cli.Flag{
			o.forceFlag("stop running pods first"),
			o.allFlag("every pod of the runtime"),
			selectorFlag(&o.selector),
			o.dryRunFlag("removed"),
		},
		Action: env.connected(o.check, o.run),
	}
}

func (o *rmpOptions) run(ctx context.Context, env *Env, conn *client.Conn) error {
	pods, err := o.pods(ctx, conn)
	ready := func(p podTarget) bool {
		return p.thing.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return batch[*runtimeapi.PodSandbox]{
		what: "pod", doing: "removing",
		would: func(p podTarget) string { return "Would remove sandbox " + p.called() },
		skip: func(env *Env, p podTarget) (bool, error) {
			if o.force || !ready(p) {
				return false, nil
			}
			return true, o.refuse(env, "pod", "sandbox ", p.called(), "crishim stopp %s stops it, crishim rmp -f %[1]s does both")
		},
		do: func(env *Env, p podTarget) error {
			if ready(p) {
				if err := stopPod(ctx, env, conn, p); unlessGone(err) != nil {
					return err
				}
			}
			_, err := conn.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.thing.GetId()})
			if unlessGone(err) != nil {
				return err
			}
			if err := removeOwnLogs(p.thing.GetMetadata()); err != nil {
				return err
			}
			return env.say("Removed sandbox %s", p.ref)
		},
	}.run(env, &o.targets, pods, err)
}
