package container

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
)

// completeContainer names a log file where the pod has a place for it, and
// remembers how the user called its image, and those that it mounts.
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

// completeAttempt sets the attempt of a container that is to be made in a pod, the one
// after those of its name that have ended there. One that is yet to end keeps
// its number, so that the runtime refuses a second one.
func completeAttempt(ctx context.Context, conn *client.Conn, pod *runtimeapi.PodSandbox, container *runtimeapi.ContainerConfig) error {
	made, err := conn.AttemptsOf(ctx, pod, container.GetMetadata().GetName())
	if err != nil {
		return err
	}
	for _, earlier := range made {
		attempt := earlier.GetMetadata().GetAttempt()
		if earlier.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED {
			attempt++
		}
		container.Metadata.Attempt = max(container.Metadata.Attempt, attempt)
	}
	return nil
}

func createContainer(ctx context.Context, conn *client.Conn, podID string, container *runtimeapi.ContainerConfig, pod *runtimeapi.PodSandboxConfig) (string, error) {
	completeContainer(container, pod)
	res, err := conn.Runtime.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: container, SandboxConfig: pod})
	if cli.IsGone(err) {
		return "", cli.WithHint(err, "crishim pull %s gets the image, crishim create --with-pull does both", container.GetImage().GetImage())
	}
	return res.GetContainerId(), err
}

// removeByForce stops a container that runs and removes it; one that is gone
// already is as good as removed.
func removeByForce(ctx context.Context, conn *client.Conn, id string, running bool, grace time.Duration) error {
	if running {
		_, err := conn.Runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: int64(grace.Seconds())})
		if cli.UnlessGone(err) != nil {
			return err
		}
	}
	_, err := conn.Runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return cli.UnlessGone(err)
}

// podConfigOf rebuilds the configuration of a pod that exists. Runtimes need
// it again for each container; containerd and CRI-O keep it in their own details.
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
	pod := &runtimeapi.PodSandboxConfig{
		Metadata:    status.GetMetadata(),
		Labels:      status.GetLabels(),
		Annotations: status.GetAnnotations(),
	}
	if options := status.GetLinux().GetNamespaces().GetOptions(); options != nil {
		pod.Linux = &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options},
		}
	}
	if own := cli.OwnLogDirectory(status.GetMetadata()); cli.IsDir(own) {
		pod.LogDirectory = own
	}
	return pod, nil
}
