package container

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type restartOptions struct {
	cli.Targets
	grace time.Duration
	dirs  pod.Dirs
}

func NewRestart(in *cli.Invocation) *cli.Verb {
	o := &restartOptions{grace: defaultGrace, dirs: in.PodDirs()}
	return &cli.Verb{
		Usage:     "Stop containers and start them again",
		ArgsUsage: "CONTAINER...",
		Args:      cli.CompleteContainers(),
		Description: cli.WithExamples("With crishim's dockershim, the same container starts again and keeps its files. Other runtimes cannot start a stopped\n"+
			"container: restart creates the next attempt with the configuration that the runtime reports, then stops the old\n"+
			"container, which keeps its files and log. Containers of a kubelet or of a running crishim sync are refused.",
			"crishim restart web", "crishim restart -t 30 web", "crishim restart --selector app=web --dry-run"),
		Flags: []urfave.Flag{
			cli.DurationFlag(&o.grace, "timeout", "Wait `DURATION` before killing containers: 30, 30s; 0 kills at once", "t"),
			o.AllFlag("Restart all running containers"),
			cli.SelectorFlag(&o.Selector),
			o.NamespaceFlag(),
			o.DryRunFlag("restarted"),
		},
		Check: o.Check,
		RunOn: o.run,
	}
}

func (o *restartOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	containers, err := o.Containers(ctx, conn, client.PreferRunning, "running")
	return cli.Batch[*runtimeapi.Container]{
		What: "running container", Doing: "restarting",
		Would: func(c cli.ContainerTarget) string { return "Would restart " + c.Called() },
		Skip: func(printer *cli.Printer, c cli.ContainerTarget) (bool, error) {
			return false, o.refuse(ctx, printer, conn, c)
		},
		Do: func(printer *cli.Printer, c cli.ContainerTarget) error {
			_, err := conn.Crishim().RestartContainer(ctx, &api.RestartContainerRequest{ContainerId: c.Object.GetId(), Timeout: int64(math.Ceil(o.grace.Seconds()))})
			if errors.Is(err, client.ErrNotDockershim) {
				return o.recreate(ctx, printer, conn, c.Object)
			}
			return err
		},
		Done: "%s",
	}.Run(printer, &o.Targets, containers, err)
}

func (o *restartOptions) refuse(ctx context.Context, printer *cli.Printer, conn *client.Conn, c cli.ContainerTarget) error {
	own := cli.ReadPodState(printer, o.dirs, conn, c.Object.GetLabels()[kube.LabelPodUID], c.Object.GetPodSandboxId())
	if c.Object.GetAnnotations()[kube.AnnotationHash] != "" && (own == nil || own.Managed) {
		return cli.WithHint(fmt.Errorf("%s is of a pod that a kubelet or crishim sync keeps, which makes its attempts", c.Called()),
			"`crishim stop %s` ends it, and who keeps the pod starts the next attempt", shellwords.Quote(c.Arg()))
	}
	return podIsReady(ctx, conn, c.Object.GetPodSandboxId(), c.Called())
}

// podIsReady returns an error if nothing can start in the pod.
func podIsReady(ctx context.Context, conn *client.Conn, id, called string) error {
	res, err := conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err == nil && res.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		err = cli.WithHint(fmt.Errorf("the pod of %s is not ready: nothing can start in it", called),
			"`crishim rmp %s` removes the pod, then run it again", shellwords.Quote(cli.PodPath(res.GetStatus().GetMetadata())))
	}
	return err
}

// recreate creates the next attempt of a container from the configuration in the verbose status, and then stops the
// old attempt.
func (o *restartOptions) recreate(ctx context.Context, printer *cli.Printer, conn *client.Conn, c *runtimeapi.Container) error {
	if c.GetState() == runtimeapi.ContainerState_CONTAINER_CREATED {
		_, err := conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.GetId()})
		return err
	}
	config, err := containerConfigOf(ctx, conn, c.GetId())
	if err != nil {
		return err
	}
	pod, err := podConfigOf(ctx, conn, c.GetPodSandboxId())
	if err != nil {
		return err
	}
	attempts, err := conn.AttemptsOf(ctx, &runtimeapi.PodSandbox{Id: c.GetPodSandboxId(), Metadata: pod.GetMetadata()}, c.GetMetadata().GetName())
	if err != nil {
		return err
	}
	for _, other := range attempts {
		config.Metadata.Attempt = max(config.Metadata.Attempt, other.GetMetadata().GetAttempt()+1)
	}
	log, numbered := strings.CutSuffix(config.GetLogPath(), fmt.Sprintf("%d.log", c.GetMetadata().GetAttempt()))
	if config.LogPath = ""; numbered { // a path without the attempt number is not reused: createContainer sets a new one
		config.LogPath = fmt.Sprintf("%s%d.log", log, config.GetMetadata().GetAttempt())
	}
	id, err := createContainer(ctx, conn, c.GetPodSandboxId(), config, pod)
	if err != nil {
		return fmt.Errorf("make the next attempt: %w", err)
	}
	remove := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		return removeByForce(ctx, conn, id, false, 0)
	}
	began := printer.Now()
	if _, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: c.GetId(), Timeout: int64(math.Ceil(o.grace.Seconds()))}); cli.UnlessGone(err) != nil {
		return cli.Join(err, remove())
	}
	cli.RecordEnd(printer, o.dirs, conn, c, "crishim restart", began, o.grace)
	if _, err := conn.Runtime.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		return cli.Join(fmt.Errorf("it is stopped, and its next attempt does not start: %w", err), remove())
	}
	printer.Note("crishim: attempt %d of %s runs; attempt %d stays with its files and log until `crishim rm %.13s`",
		config.GetMetadata().GetAttempt(), cli.ContainerName(c), c.GetMetadata().GetAttempt(), c.GetId())
	return nil
}

// containerConfigOf returns the configuration of an existing container. CRI has no call for it; containerd reports it
// in the verbose status. The image is the container's, even if its name has moved to another image.
func containerConfigOf(ctx context.Context, conn *client.Conn, id string) (*runtimeapi.ContainerConfig, error) {
	res, err := conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	if err != nil {
		return nil, err
	}
	var details struct {
		Config *runtimeapi.ContainerConfig `json:"config"`
	}
	if json.Unmarshal([]byte(res.GetInfo()["info"]), &details) != nil || details.Config.GetMetadata() == nil || details.Config.GetImage() == nil {
		return nil, cli.WithHint(fmt.Errorf("%s does not tell the configuration of its containers", cmp.Or(conn.Version.GetRuntimeName(), "the runtime")),
			"`crishim create` makes a container from a configuration file")
	}
	config := details.Config
	config.Image.UserSpecifiedImage = cmp.Or(config.Image.UserSpecifiedImage, config.Image.Image)
	config.Image.Image = cmp.Or(res.GetStatus().GetImageId(), config.Image.Image)
	return config, nil
}
