package pod

import (
	"context"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
)

type runpOptions struct {
	pod     *runtimeapi.PodSandboxConfig
	handler string
	cancel  time.Duration
	dryRun  bool
}

func NewRunp(env *cli.Env) *cli.Verb {
	o := &runpOptions{}
	return &cli.Verb{
		Name:      "runp",
		Usage:     "run a pod",
		ArgsUsage: "POD-CONFIG",
		Args:      cli.Files,
		Description: cli.WithExamples("Creates a pod from a configuration in JSON or YAML, - for standard input, and prints its id. A missing uid is generated.",
			"crishim runp pod.json", "crishim runp --dry-run pod.yaml"),
		Subcommands: []*cli.Verb{cli.NewSchema(env, "runp", "pod")},
		Flags: []urfave.Flag{
			cli.StringFlag(&o.handler, "runtime", "runtime `HANDLER` to use for this pod", "r"),
			cli.CancelFlag(&o.cancel),
			cli.DryRunFlag(&o.dryRun),
		},
		Action: env.Offline(o.check, o.run),
	}
}

func (o *runpOptions) check(env *cli.Env, c *urfave.Context) (err error) {
	if err = cli.ArgCount(c, 1, 1); err != nil {
		return err
	}
	o.pod, err = env.ReadPodFile(c.Args().First())
	return err
}

func (o *runpOptions) run(ctx context.Context, env *cli.Env) error {
	cli.CompletePod(o.pod)
	if o.dryRun {
		return cli.PrintRequest(env, &runtimeapi.RunPodSandboxRequest{Config: o.pod, RuntimeHandler: o.handler})
	}
	conn, err := env.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	id, err := cli.RunPod(ctx, conn, o.pod, o.handler, cli.Limited(o.cancel))
	if err != nil {
		return err
	}
	return env.Say("%s", id)
}
