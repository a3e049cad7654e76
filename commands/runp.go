package commands

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type runpOptions struct {
	pod     *runtimeapi.PodSandboxConfig
	handler string
	cancel  time.Duration
	dryRun  bool
}

// newRunp makes and starts a pod sandbox.
func newRunp(env *Env) *cli.Command {
	o := &runpOptions{}
	return &cli.Command{
		Name:      "runp",
		Usage:     "run a pod",
		ArgsUsage: "POD-CONFIG",
		Description: describe("Makes a pod from a configuration in JSON or YAML, - for standard input, and prints its id. A uid is made up where there is none.",
			"crishim runp pod.json", "crishim runp --dry-run pod.yaml"),
		Subcommands: []*cli.Command{newSchema(env, "runp", "pod")},
		Flags: []cli.Flag{
			stringFlag(&o.handler, "runtime", "run it with this runtime `HANDLER`", "r"),
			cancelFlag(&o.cancel),
			dryRunFlag(&o.dryRun),
		},
		Action: env.offline(o.check, o.run),
	}
}

func (o *runpOptions) check(env *Env, c *cli.Context) (err error) {
	if err = argCount(c, 1, 1); err != nil {
		return err
	}
	o.pod, err = env.readPodFile(c.Args().First())
	return err
}

func (o *runpOptions) run(ctx context.Context, env *Env) error {
	completePod(o.pod)
	if o.dryRun {
		return printRequest(env, &runtimeapi.RunPodSandboxRequest{Config: o.pod, RuntimeHandler: o.handler})
	}
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	id, err := runPod(limited(ctx, o.cancel), conn, o.pod, o.handler)
	if err != nil {
		return err
	}
	return env.say("%s", id)
}
