package commands

import (
	"context"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
)

type createOptions struct {
	podRef    string
	pod       *runtimeapi.PodSandboxConfig // nil: ask the runtime
	container *runtimeapi.ContainerConfig
	attempt   bool // the file names it
	pull      pullOptions
	withPull  bool
	cancel    time.Duration
	dryRun    bool
}

// newCreate makes a container in a pod.
func newCreate(env *Env) *cli.Command {
	o := &createOptions{}
	return &cli.Command{
		Name:      "create",
		Usage:     "make a container in a pod",
		ArgsUsage: "POD CONTAINER-CONFIG [POD-CONFIG]",
		Description: describe("Makes a container from a configuration in JSON or YAML, - for standard input, and prints its id. The pod's own configuration is asked from the runtime where it is not given. Without metadata.attempt the container is the next attempt after those of its name that have ended in the pod.",
			"crishim create web container.json pod.json", "crishim create web container.yaml", "crishim create --with-pull web - < container.json"),
		Subcommands: []*cli.Command{newSchema(env, "create", "container")},
		Flags:       slices.Concat(o.pull.flags(), o.pull.choiceFlags(), []cli.Flag{cancelFlag(&o.cancel), dryRunFlag(&o.dryRun)}),
		Action:      env.offline(o.check, o.run),
	}
}

func (o *createOptions) check(env *Env, c *cli.Context) (err error) {
	if err = argCount(c, 2, 3); err != nil {
		return err
	}
	if err = o.pull.check(env, c); err != nil {
		return err
	}
	config, err := env.config()
	if err != nil {
		return err
	}
	if o.withPull, err = o.pull.wanted(config.PullImageOnCreate); err != nil {
		return err
	}
	o.podRef = c.Args().First()
	if o.container, o.attempt, err = env.readContainerFile(c.Args().Get(1)); err != nil {
		return err
	}
	if c.Args().Len() == 3 {
		o.pod, err = env.readPodFile(c.Args().Get(2))
	}
	return err
}

func (o *createOptions) run(ctx context.Context, env *Env) error {
	if o.dryRun && o.pod != nil {
		return o.print(env, o.podRef)
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
	if err == nil && !o.attempt && !env.compat {
		err = completeAttempt(ctx, conn, pod, o.container)
	}
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.print(env, pod.GetId())
	}
	if o.withPull {
		if err := o.pull.pullFor(ctx, env, conn, o.container, o.pod); err != nil {
			return err
		}
	}
	id, err := createContainer(limited(ctx, o.cancel), conn, pod.GetId(), o.container, o.pod)
	if err != nil {
		return err
	}
	return env.say("%s", id)
}

func (o *createOptions) print(env *Env, podID string) error {
	completeContainer(o.container, o.pod)
	return printRequest(env, &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: o.container, SandboxConfig: o.pod})
}

// adoptPod gives a configuration from a file what it leaves out and the pod was
// made with: the uid may have been made up then. The runtime is asked only for a
// log directory: not the embedded shim, which reads the engine's logs, nor when
// crishim has made one itself.
func adoptPod(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandboxConfig, made *runtimeapi.PodSandbox) error {
	if pod.Metadata.Uid == "" {
		pod.Metadata.Uid = made.GetMetadata().GetUid()
	}
	if pod.Metadata.Namespace == "" {
		pod.Metadata.Namespace = made.GetMetadata().GetNamespace()
	}
	if pod.LogDirectory != "" || conn.Embedded {
		return nil
	}
	if own := ownLogDirectory(made.GetMetadata()); isDir(own) {
		pod.LogDirectory = own
		return nil
	}
	known, err := podConfigOf(ctx, conn, made.GetId())
	pod.LogDirectory = known.GetLogDirectory()
	return err
}
