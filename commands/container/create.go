package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/shellwords"
)

type createOptions struct {
	podRef    string
	pod       *runtimeapi.PodSandboxConfig // nil: ask the runtime
	container *runtimeapi.ContainerConfig
	attempt   bool // the file sets the attempt
	pull      cli.PullOptions
	withPull  bool
	cancel    time.Duration
	dryRun    bool
}

func NewCreate(in *cli.Invocation) *cli.Verb {
	o := &createOptions{}
	return &cli.Verb{
		Usage:     "Create a container in a pod",
		ArgsUsage: "POD CONTAINER-CONFIG [POD-CONFIG]",
		Args:      cli.First(cli.CompletePods, cli.CompleteFiles),
		Description: cli.WithExamples("Creates a container from a configuration in JSON or YAML (- for stdin) and prints its ID. Without POD-CONFIG, the runtime is asked for the pod's configuration. Without metadata.attempt, the container is the next attempt after the ended containers of the same name in the pod.",
			"crishim create web container.json pod.json", "crishim create web container.yaml", "crishim create --with-pull web - < container.json"),
		Subcommands: []cli.Entry{cli.NewSchema("create", "container")},
		Flags:       slices.Concat(o.pull.Flags(), o.pull.ChoiceFlags(), []urfave.Flag{cli.CancelFlag(&o.cancel), cli.DryRunFlag(&o.dryRun)}),
		Check:       o.check,
		Run:         o.run,
	}
}

func (o *createOptions) check(in *cli.Invocation, c *urfave.Context) (err error) {
	if err = cli.ArgCount(c, 2, 3); err != nil {
		return err
	}
	if err = o.pull.Check(in, c); err != nil {
		return err
	}
	o.podRef = c.Args().First()
	if o.container, o.attempt, err = cli.ReadContainerFile(in.In, c.Args().Get(1)); err != nil {
		if _, missing := os.Stat(c.Args().Get(1)); errors.Is(missing, fs.ErrNotExist) && c.Args().Get(1) != "-" && !in.Compat { // the argument may be an image, as in docker create
			err = cli.WithHint(err, "from an image: `crishim run -d --pod %s IMAGE`, or `crishim run -d IMAGE` in a pod of its own", shellwords.Quote(o.podRef))
		}
		return err
	}
	if c.Args().Len() == 3 {
		o.pod, err = cli.ReadPodFile(in.In, c.Args().Get(2))
	}
	return err
}

func (o *createOptions) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	config, err := connector.Config()
	if err != nil {
		return err
	}
	o.withPull = o.pull.Wanted(config.PullImageOnCreate)
	if o.dryRun && o.pod != nil {
		return o.print(printer, o.podRef)
	}
	conn, err := connector.Connect(ctx)
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
		err = completeFromPod(ctx, conn, o.pod, pod)
	}
	if err == nil && !o.attempt && !printer.Compat {
		err = completeAttempt(ctx, conn, pod, o.container)
	}
	if err != nil {
		return err
	}
	if o.dryRun {
		return o.print(printer, pod.GetId())
	}
	if o.withPull {
		if err := o.pull.PullFor(ctx, printer, conn, o.container, o.pod); err != nil {
			return err
		}
	}
	id, err := createContainer(ctx, conn, pod.GetId(), o.container, o.pod, cli.CancelTimeout(o.cancel))
	if err != nil {
		return err
	}
	return printer.Say("%s", id)
}

func (o *createOptions) print(printer *cli.Printer, podID string) error {
	completeContainer(o.container, o.pod)
	return cli.PrintRequest(printer.Out, &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: o.container, SandboxConfig: o.pod})
}

func createContainer(ctx context.Context, conn *client.Conn, podID string, container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig, opts ...grpc.CallOption) (string, error) {
	completeContainer(container, pod)
	res, err := conn.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: container, SandboxConfig: pod}, opts...)
	if cli.IsGone(err) {
		return "", cli.WithHint(err, "`crishim pull %s` gets the image, `crishim create --with-pull` does both", shellwords.Quote(container.GetImage().GetImage()))
	}
	return res.GetContainerId(), err
}

// completeContainer sets the log path, if the pod has a log directory, and UserSpecifiedImage.
func completeContainer(container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) {
	if container.LogPath == "" && pod.GetLogDirectory() != "" {
		container.LogPath = fmt.Sprintf("%s.%d.log", container.GetMetadata().GetName(), container.GetMetadata().GetAttempt())
	}
	images := []*runtimeapi.ImageSpec{container.Image}
	for _, mount := range container.Mounts {
		images = append(images, mount.GetImage())
	}
	for _, image := range images {
		if image != nil && image.UserSpecifiedImage == "" {
			image.UserSpecifiedImage = image.Image
		}
	}
}

// completeAttempt sets the attempt to the number after the last ended attempt of the container's name, in all sandboxes of
// the pod. If the last attempt has not ended, completeAttempt keeps its number: the runtime then rejects the container as
// a duplicate.
func completeAttempt(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandbox, container *runtimeapi.ContainerConfig) error {
	earlier, err := conn.AttemptsOf(ctx, pod, container.GetMetadata().GetName())
	for _, c := range earlier {
		attempt := c.GetMetadata().GetAttempt()
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			attempt++
		}
		container.Metadata.Attempt = max(container.Metadata.Attempt, attempt)
	}
	return err
}

// completeFromPod adds the generated uid, namespace, log directory and, on containerd, cgroup parent of an existing pod
// to a configuration from a file. The embedded shim reads the engine's logs and needs no log directory.
func completeFromPod(ctx context.Context, conn *client.Conn, config *runtimeapi.PodSandboxConfig, pod *runtimeapi.PodSandbox) error {
	if config.Metadata.Uid == "" {
		config.Metadata.Uid = pod.GetMetadata().GetUid()
	}
	if config.Metadata.Namespace == "" {
		config.Metadata.Namespace = pod.GetMetadata().GetNamespace()
	}
	if config.LogDirectory == "" && !conn.Embedded {
		config.LogDirectory = cli.ExistingOwnLogs(conn, pod.GetMetadata())
	}
	needsGroup := config.GetLinux().GetCgroupParent() == "" && conn.Version.GetRuntimeName() == "containerd"
	if (config.LogDirectory != "" || conn.Embedded) && !needsGroup {
		return nil
	}
	known, err := podConfigOf(ctx, conn, pod.GetId())
	config.LogDirectory = cmp.Or(config.LogDirectory, known.GetLogDirectory())
	if parent := known.GetLinux().GetCgroupParent(); needsGroup && parent != "" {
		if config.Linux == nil {
			config.Linux = &runtimeapi.LinuxPodSandboxConfig{}
		}
		config.Linux.CgroupParent = parent
	}
	return err
}

// podConfigOf returns the configuration of an existing pod, which runtimes need for each container. containerd and
// CRI-O report it in their verbose status; for other runtimes it is built from the status.
func podConfigOf(ctx context.Context, conn *client.Conn, id string) (*runtimeapi.PodSandboxConfig, error) {
	res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	var details struct {
		Config *runtimeapi.PodSandboxConfig `json:"config"`
	}
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) == nil && details.Config.GetMetadata() != nil {
		return details.Config, nil
	}
	status := res.GetStatus()
	pod := &runtimeapi.PodSandboxConfig{Metadata: status.GetMetadata(), Labels: status.GetLabels(), Annotations: status.GetAnnotations()}
	if options := status.GetLinux().GetNamespaces().GetOptions(); options != nil {
		pod.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options}}
	}
	pod.LogDirectory = cli.ExistingOwnLogs(conn, status.GetMetadata())
	return pod, nil
}
