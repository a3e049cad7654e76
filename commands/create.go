package commands

import (
	"context"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

// newCreate makes a container in a pod.
func newCreate(env *Env) *cli.Command {
	return &cli.Command{
		Name:      "create",
		Usage:     "make a container in a pod",
		ArgsUsage: "POD CONTAINER-CONFIG [POD-CONFIG]",
		Description: describe("Makes a container from a configuration in JSON or YAML, - for standard input, and prints its id. The pod's own configuration is asked from the runtime where it is not given. Without metadata.attempt the container is the next attempt after those of its name that have ended in the pod.",
			"crishim create web container.json pod.json", "crishim create web container.yaml", "crishim create --with-pull web - < container.json"),
		Subcommands: []*cli.Command{newSchema(env, "create", "container")},
		Flags:       append(pullFlags(), append(pullChoiceFlags(), cancelFlag(), dryRunFlag())...),
		Action:      action(env, createOptionsOf, runCreate),
	}
}

type createOptions struct {
	podRef    string
	pod       *runtimeapi.PodSandboxConfig // nil: ask the runtime
	container *runtimeapi.ContainerConfig
	pull      pullOptions
	attempt   bool // the file names it
	withPull  bool
	cancel    time.Duration
	dryRun    bool
}

func createOptionsOf(env *Env, c *cli.Context) (o createOptions, err error) {
	if err = argCount(c, 2, 3); err != nil {
		return o, err
	}
	if o.pull, err = readPullFlags(env, c); err != nil {
		return o, err
	}
	config, err := env.config()
	if err != nil {
		return o, err
	}
	if o.withPull, err = wantsPull(c, config.PullImageOnCreate); err != nil {
		return o, err
	}
	o.podRef, o.cancel, o.dryRun = c.Args().First(), durationOf(c, "cancel-timeout"), c.Bool("dry-run")
	if o.container, o.attempt, err = env.readContainerFile(c.Args().Get(1)); err != nil {
		return o, err
	}
	if c.Args().Len() == 3 {
		o.pod, err = env.readPodFile(c.Args().Get(2))
	}
	return o, err
}

func (o createOptions) request(podID string) *runtimeapi.CreateContainerRequest {
	return &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: o.container, SandboxConfig: o.pod}
}

func runCreate(ctx context.Context, env *Env, o createOptions) error {
	if o.dryRun && o.pod != nil {
		completeContainer(o.container, o.pod)
		return printRequest(env, o.request(o.podRef))
	}
	conn, err := env.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	pod, err := conn.Pod(ctx, o.podRef, client.PreferRunning)
	if err != nil {
		return err
	}
	if o.pod == nil {
		o.pod, err = podConfigOf(ctx, conn, pod.GetId())
	} else {
		err = adoptPod(ctx, conn, o.pod, pod)
	}
	if err != nil {
		return err
	}
	if !o.attempt && !env.compat {
		if err := completeAttempt(ctx, conn, pod, o.container); err != nil {
			return err
		}
	}
	if o.dryRun {
		completeContainer(o.container, o.pod)
		return printRequest(env, o.request(pod.GetId()))
	}
	if o.withPull {
		if err := pullFor(ctx, env, conn, o.pull, o.container, o.pod); err != nil {
			return err
		}
	}
	id, err := createContainer(limited(ctx, o.cancel), conn, pod.GetId(), o.container, o.pod)
	if err != nil {
		return err
	}
	return env.say("%s", id)
}

func createContainer(ctx context.Context, conn *client.Conn, podID string, container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	completeContainer(container, pod)
	res, err := conn.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: container, SandboxConfig: pod})
	if isGone(err) {
		return "", withHint(err, "crishim pull %s gets the image, crishim create --with-pull does both", container.GetImage().GetImage())
	}
	return res.GetContainerId(), err
}

// wantsPull reads --with-pull and --no-pull, which go before the config file.
func wantsPull(c *cli.Context, usual bool) (bool, error) {
	with, without := c.Bool("with-pull"), c.Bool("no-pull")
	switch {
	case with && without:
		return false, usagef("--with-pull and --no-pull contradict each other")
	case with:
		return true, nil
	case without:
		return false, nil
	}
	return usual, nil
}

func pullChoiceFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "with-pull", Usage: "pull the image first"},
		&cli.BoolFlag{Name: "no-pull", Usage: "do not pull the image"},
	}
}
