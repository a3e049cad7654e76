package container

import (
	"context"
	"slices"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

type createOptions struct {
	podRef    string
	pod       *runtimeapi.PodSandboxConfig // nil: ask the runtime
	container *runtimeapi.ContainerConfig
	attempt   bool // the file names it
	pull      cli.PullOptions
	withPull  bool
	cancel    time.Duration
	dryRun    bool
}

// NewCreate makes a container in a pod.
func NewCreate(env *cli.Env) *urfave.Command {
	o := &createOptions{}
	return &urfave.Command{
		Name:      "create",
		Usage:     "make a container in a pod",
		ArgsUsage: "POD CONTAINER-CONFIG [POD-CONFIG]",
		Description: cli.WithExamples("Makes a container from a configuration in JSON or YAML, - for standard input, and prints its id. The pod's own configuration is asked from the runtime where it is not given. Without metadata.attempt the container is the next attempt after those of its name that have ended in the pod.",
			"crishim create web container.json pod.json", "crishim create web container.yaml", "crishim create --with-pull web - < container.json"),
		Subcommands: []*urfave.Command{cli.NewSchema(env, "create", "container")},
		Flags:       slices.Concat(o.pull.Flags(), o.pull.ChoiceFlags(), []urfave.Flag{cli.CancelFlag(&o.cancel), cli.DryRunFlag(&o.dryRun)}),
		Action:      env.Offline(o.check, o.run),
	}
}

func (o *createOptions) check(env *cli.Env, c *urfave.Context) (err error) {
	if err = cli.ArgCount(c, 2, 3); err != nil {
		return err
	}
	if err = o.pull.Check(env, c); err != nil {
		return err
	}
	config, err := env.Config()
	if err != nil {
		return err
	}
	if o.withPull, err = o.pull.Wanted(config.PullImageOnCreate); err != nil {
		return err
	}
	o.podRef = c.Args().First()
	if o.container, o.attempt, err = env.ReadContainerFile(c.Args().Get(1)); err != nil {
		return err
	}
	if c.Args().Len() == 3 {
		o.pod, err = env.ReadPodFile(c.Args().Get(2))
	}
	return err
}

func (o *createOptions) run(ctx context.Context, env *cli.Env) error {
	if o.dryRun && o.pod != nil {
		return o.print(env, o.podRef)
	}
	conn, err := env.Connect(ctx)
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
	if err == nil && !o.attempt && !env.Compat {
		err = completeAttempt(ctx, conn, pod, o.container)
	}
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.print(env, pod.GetId())
	}
	if o.withPull {
		if err := o.pull.PullFor(ctx, env, conn, o.container, o.pod); err != nil {
			return err
		}
	}
	id, err := createContainer(cli.Limited(ctx, o.cancel), conn, pod.GetId(), o.container, o.pod)
	if err != nil {
		return err
	}
	return env.Say("%s", id)
}

func (o *createOptions) print(env *cli.Env, podID string) error {
	completeContainer(o.container, o.pod)
	return cli.PrintRequest(env, &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: o.container, SandboxConfig: o.pod})
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
	if own := cli.OwnLogDirectory(made.GetMetadata()); cli.IsDir(own) {
		pod.LogDirectory = own
		return nil
	}
	known, err := podConfigOf(ctx, conn, made.GetId())
	pod.LogDirectory = known.GetLogDirectory()
	return err
}
