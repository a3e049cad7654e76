package commands

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/crifile"
	"github.com/crishim/crishim/output"
)

// newRunp makes and starts a pod sandbox.
func newRunp(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "runp",
		Usage:     "run a pod",
		ArgsUsage: "POD-CONFIG",
		Description: describe("Makes a pod from a configuration in JSON or YAML, - for standard input, and prints its id. A uid is made up where there is none.",
			"crishim runp pod.json", "crishim runp --dry-run pod.yaml"),
		Subcommands: []*cli.Command{newSchema(env, "runp", "pod")},
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "runtime", Aliases: []string{"r"}, Usage: "run it with this runtime `HANDLER`"},
			cancelFlag(),
			dryRunFlag(),
		},
		Action: action(env, runpOptionsOf, runRunp),
	}
}

func cancelFlag() cli.Flag {
	return durationFlag("cancel-timeout", "T", "give each request this long: 5, 5s, 1m")
}

func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "print the request instead of sending it"}
}

type runpOptions struct {
	pod     *runtimeapi.PodSandboxConfig
	handler string
	cancel  time.Duration
	dryRun  bool
}

func runpOptionsOf(env *Env, c *cli.Context) (o runpOptions, err error) {
	if err = argCount(c, 1, 1); err != nil {
		return o, err
	}
	o.handler, o.cancel, o.dryRun = c.String("runtime"), durationOf(c, "cancel-timeout"), c.Bool("dry-run")
	o.pod, err = env.readPodFile(c.Args().First())
	return o, err
}

func (o runpOptions) request() *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: o.pod, RuntimeHandler: o.handler}
}

func runRunp(ctx context.Context, env *Env, o runpOptions) error {
	completePod(o.pod)
	if o.dryRun {
		return printRequest(env, o.request())
	}
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	id, err := runPod(limited(ctx, o.cancel), conn, o)
	if err != nil {
		return err
	}
	return env.say("%s", id)
}

func runPod(ctx context.Context, conn *client.Conn, o runpOptions) (string, error) {
	given := o.pod.LogDirectory
	if err := completeLogs(o.pod, conn.Embedded); err != nil {
		return "", err
	}
	res, err := conn.Runtime.RunPodSandbox(ctx, o.request())
	if err != nil {
		if given == "" && o.pod.LogDirectory != "" {
			err = join(err, removeOwnLogs(o.pod.GetMetadata()))
		}
		return "", err
	}
	return res.GetPodSandboxId(), nil
}

// limited puts --cancel-timeout in the place of the usual limit.
func limited(ctx context.Context, d time.Duration) context.Context {
	if d <= 0 {
		return ctx
	}
	return client.WithTimeout(ctx, d, "--cancel-timeout")
}

// printRequest shows what would be sent, in a form that can be fed back.
func printRequest(env *Env, requests ...proto.Message) error {
	for _, request := range requests {
		if err := output.Value(env.Out, crifile.Encode(request), output.Options{}, nil); err != nil {
			return err
		}
	}
	return nil
}
