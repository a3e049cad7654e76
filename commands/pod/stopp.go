package pod

import (
	"context"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

type stoppOptions struct{ cli.Targets }

func NewStopp(env *cli.Env) *cli.Verb {
	o := &stoppOptions{cli.Targets{PassUnknown: true}}
	return &cli.Verb{
		Name:        "stopp",
		Usage:       "stop pods",
		ArgsUsage:   "POD...",
		Args:        cli.Pods,
		Description: cli.WithExamples("Stops the containers of pods and removes their networks. That a pod is stopped already is no error.", "crishim stopp web", "crishim stopp --selector app=web --dry-run"),
		Flags:       []urfave.Flag{cli.SelectorFlag(&o.Selector, "l"), o.NamespaceFlag(), o.DryRunFlag("stopped")},
		Action:      env.Connected(o.Check, o.run),
	}
}

func (o *stoppOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	pods, err := o.Pods(ctx, conn)
	return cli.Batch[*runtimeapi.PodSandbox]{
		What:  "pod",
		Would: func(p cli.PodTarget) string { return "Would stop sandbox " + p.Called() },
		Do:    func(env *cli.Env, p cli.PodTarget) error { return stopPod(ctx, env, conn, p) },
	}.Run(env, &o.Targets, pods, err)
}

func stopPod(ctx context.Context, env *cli.Env, conn *client.Conn, p cli.PodTarget) error {
	if _, err := conn.Runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.Object.GetId()}); err != nil {
		return err
	}
	return env.Say("Stopped sandbox %s", p.Ref)
}
