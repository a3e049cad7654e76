package commands

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newRmp removes pods with their containers.
func newRmp(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "rmp",
		Usage:     "remove pods",
		ArgsUsage: "POD...",
		Description: describe("Removes pods and all their containers. A pod that still runs is refused unless --force stops it first.",
			"crishim rmp web", "crishim rmp -f web", "crishim rmp --all --force"),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "force", Aliases: []string{"f"}, Usage: "stop a pod that runs first"},
			&cli.BoolFlag{Name: "all", Aliases: []string{"a"}, Usage: "every pod of the runtime"},
			selectorFlag(),
			&cli.BoolFlag{Name: "dry-run", Usage: "say what would be removed"},
		},
		Action: action(env, removalOf, runRmp),
	}
}

// removal is what rm and rmp were asked to take away.
type removal struct {
	choice                  choice
	force, dryRun, keepLogs bool
}

func removalOf(_ *Env, c *cli.Context) (o removal, err error) {
	o.force, o.dryRun, o.keepLogs = c.Bool("force"), c.Bool("dry-run"), c.Bool("keep-logs")
	o.choice, err = readChoice(c)
	return o, err
}

func runRmp(ctx context.Context, env *Env, o removal) error {
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pods, failed := o.choice.pods(ctx, conn)
	if failed == nil {
		o.choice.warnOfNone(env, "pod", len(pods))
	}
	if o.choice.all && !o.dryRun && failed == nil {
		announce(env, "removing", "pod", pods)
	}
	return join(failed, inParallel(env, pods, func(env *Env, p target[*runtimeapi.PodSandbox]) error {
		return removePod(ctx, env, conn, o, p)
	}))
}

func removePod(ctx context.Context, env *Env, conn *client.Conn, o removal, p target[*runtimeapi.PodSandbox]) error {
	ready := p.thing.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	switch {
	case ready && !o.force:
		return refuseReady(env, o, p)
	case o.dryRun:
		return env.say("Would remove sandbox %s", p.called())
	case ready:
		if err := stopPod(ctx, env, conn, p.thing.GetId(), p.ref); err != nil && !isGone(err) {
			return err
		}
	}
	_, err := conn.Runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.thing.GetId()})
	if err != nil && !isGone(err) {
		return about(p.called(), err)
	}
	if err := removeOwnLogs(p.thing.GetMetadata()); err != nil {
		return about(p.called(), err)
	}
	return env.say("Removed sandbox %s", p.ref)
}

// refuseReady leaves a pod that still runs alone, which a list may have more of.
func refuseReady(env *Env, o removal, p target[*runtimeapi.PodSandbox]) error {
	switch {
	case o.choice.listed() && o.dryRun:
		return env.say("Would leave sandbox %s: it still runs, --force stops it first", p.called())
	case o.choice.listed():
		return fmt.Errorf("pod %s still runs; --force stops it first", p.called())
	}
	return withHint(fmt.Errorf("pod %s still runs", p.ref), "crishim stopp %s stops it, crishim rmp -f %s does both", p.ref, p.ref)
}
