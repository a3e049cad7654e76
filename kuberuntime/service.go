package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// service is the runtime as the manager calls it: instrumented, and with answers that
// lack what they promise turned into errors.
type service struct {
	runtime runtimeapi.RuntimeServiceClient
	image   runtimeapi.ImageServiceClient
	metrics *Metrics
}

// errEmptyID is an answer that a runtime must not give.
var errEmptyID = errors.New("the runtime answered with an empty id")

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

// ignoreNotFound is for what is to be gone.
func ignoreNotFound(err error) error {
	if isNotFound(err) {
		return nil
	}
	return err
}

func (s *service) version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	return call(ctx, s.metrics, "version", s.runtime.Version, &runtimeapi.VersionRequest{Version: apiVersion})
}

func (s *service) status(ctx context.Context) (*runtimeapi.RuntimeStatus, error) {
	resp, err := call(ctx, s.metrics, "status", s.runtime.Status, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, err
	}
	if len(resp.GetStatus().GetConditions()) < 2 {
		return nil, errors.New("the runtime's status lacks conditions")
	}
	return resp.GetStatus(), nil
}

func (s *service) runPodSandbox(ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string) (string, error) {
	resp, err := call(ctx, s.metrics, "run_podsandbox", s.runtime.RunPodSandbox, &runtimeapi.RunPodSandboxRequest{Config: config, RuntimeHandler: handler})
	if err == nil && resp.GetPodSandboxId() == "" {
		err = errEmptyID
	}
	return resp.GetPodSandboxId(), err
}

func (s *service) stopPodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, s.metrics, "stop_podsandbox", s.runtime.StopPodSandbox, &runtimeapi.StopPodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

func (s *service) removePodSandbox(ctx context.Context, id string) error {
	_, err := call(ctx, s.metrics, "remove_podsandbox", s.runtime.RemovePodSandbox, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id})
	return ignoreNotFound(err)
}

func (s *service) podSandboxStatus(ctx context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	resp, err := call(ctx, s.metrics, "podsandbox_status", s.runtime.PodSandboxStatus, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	return resp.GetStatus(), err
}

func (s *service) listPodSandbox(ctx context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	resp, err := call(ctx, s.metrics, "list_podsandbox", s.runtime.ListPodSandbox, &runtimeapi.ListPodSandboxRequest{Filter: f})
	return resp.GetItems(), err
}

func (s *service) createContainer(ctx context.Context, sandboxID string, config *runtimeapi.ContainerConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := call(ctx, s.metrics, "create_container", s.runtime.CreateContainer,
		&runtimeapi.CreateContainerRequest{PodSandboxId: sandboxID, Config: config, SandboxConfig: sandbox})
	if err == nil && resp.GetContainerId() == "" {
		err = errEmptyID
	}
	return resp.GetContainerId(), err
}

func (s *service) startContainer(ctx context.Context, id string) error {
	_, err := call(ctx, s.metrics, "start_container", s.runtime.StartContainer, &runtimeapi.StartContainerRequest{ContainerId: id})
	return err
}

func (s *service) stopContainer(ctx context.Context, id string, grace int64) error {
	_, err := call(ctx, s.metrics, "stop_container", s.runtime.StopContainer, &runtimeapi.StopContainerRequest{ContainerId: id, Timeout: grace})
	return ignoreNotFound(err)
}

func (s *service) removeContainer(ctx context.Context, id string) error {
	_, err := call(ctx, s.metrics, "remove_container", s.runtime.RemoveContainer, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return ignoreNotFound(err)
}

func (s *service) listContainers(ctx context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	resp, err := call(ctx, s.metrics, "list_containers", s.runtime.ListContainers, &runtimeapi.ListContainersRequest{Filter: f})
	return resp.GetContainers(), err
}

func (s *service) containerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	resp, err := call(ctx, s.metrics, "container_status", s.runtime.ContainerStatus, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	return resp.GetStatus(), err
}

func (s *service) reopenLog(ctx context.Context, id string) error {
	_, err := call(ctx, s.metrics, "reopen_container_log", s.runtime.ReopenContainerLog, &runtimeapi.ReopenContainerLogRequest{ContainerId: id})
	return err
}

// ExitError is a command that ended with another status than 0.
type ExitError struct {
	Code   int
	Stderr string
}

func (e *ExitError) Error() string { return fmt.Sprintf("command ended with status %d", e.Code) }

// ErrTimeout is a command that took longer than it may.
var ErrTimeout = errors.New("command timed out")

func (s *service) execSync(ctx context.Context, id string, cmd []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	seconds := int64((timeout + time.Second - 1) / time.Second)
	if timeout > 0 {
		// The runtime's answer to its own timeout comes a little later than the timeout.
		limited, cancel := context.WithTimeout(ctx, timeout+execGrace)
		defer cancel()
		ctx = limited
	}
	resp, err := call(ctx, s.metrics, "exec_sync", s.runtime.ExecSync, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds})
	switch {
	case status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil: // else the runtime did not answer at all
		return nil, nil, fmt.Errorf("%w after %s", ErrTimeout, timeout)
	case err != nil:
		return nil, nil, err
	case resp.GetExitCode() != 0:
		return resp.GetStdout(), resp.GetStderr(), &ExitError{Code: int(resp.GetExitCode()), Stderr: string(resp.GetStderr())}
	}
	return resp.GetStdout(), resp.GetStderr(), nil
}

const execGrace = 2 * time.Minute

func (s *service) imageStatus(ctx context.Context, image string) (*runtimeapi.Image, error) {
	resp, err := call(ctx, s.metrics, "image_status", s.image.ImageStatus, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return resp.GetImage(), err
}

func (s *service) listImages(ctx context.Context) ([]*runtimeapi.Image, error) {
	resp, err := call(ctx, s.metrics, "list_images", s.image.ListImages, &runtimeapi.ListImagesRequest{})
	return resp.GetImages(), err
}

func (s *service) pullImage(ctx context.Context, image string, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error) {
	resp, err := call(ctx, s.metrics, "pull_image", s.image.PullImage,
		&runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: image}, Auth: auth, SandboxConfig: sandbox})
	if err == nil && resp.GetImageRef() == "" {
		err = fmt.Errorf("pull %s: the runtime answered with an empty reference", image)
	}
	return resp.GetImageRef(), err
}

func (s *service) removeImage(ctx context.Context, image string) error {
	_, err := call(ctx, s.metrics, "remove_image", s.image.RemoveImage, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: image}})
	return ignoreNotFound(err)
}

func (s *service) imageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	return call(ctx, s.metrics, "image_fs_info", s.image.ImageFsInfo, &runtimeapi.ImageFsInfoRequest{})
}
