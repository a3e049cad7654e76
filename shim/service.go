package shim

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Which service answers which RPC. CreateContainer is in temporary.go, the streamed lists
// are in liststream.go.

func (s *criService) Version(ctx context.Context, r *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return s.node.Version(ctx, r)
}

func (s *criService) Status(ctx context.Context, r *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return s.node.Status(ctx, r)
}

func (s *criService) RuntimeConfig(ctx context.Context, r *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return s.node.RuntimeConfig(ctx, r)
}

func (s *criService) UpdateRuntimeConfig(ctx context.Context, r *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return s.node.UpdateRuntimeConfig(ctx, r)
}

func (s *criService) RunPodSandbox(ctx context.Context, r *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	return s.sandboxes.RunPodSandbox(ctx, r)
}

func (s *criService) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	return s.sandboxes.StopPodSandbox(ctx, r)
}

func (s *criService) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	return s.sandboxes.RemovePodSandbox(ctx, r)
}

func (s *criService) ListPodSandbox(ctx context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return s.sandboxes.ListPodSandbox(ctx, r)
}

func (s *criService) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	return s.sandboxes.UpdatePodSandboxResources(ctx, r)
}

func (s *criService) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.podStatuses.PodSandboxStatus(ctx, r)
}

func (s *criService) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	return s.containers.StartContainer(ctx, r)
}

func (s *criService) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	return s.containers.StopContainer(ctx, r)
}

func (s *criService) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	return s.containers.RemoveContainer(ctx, r)
}

func (s *criService) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return s.containers.ListContainers(ctx, r)
}

func (s *criService) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return s.containers.ContainerStatus(ctx, r)
}

func (s *criService) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	return s.containers.UpdateContainerResources(ctx, r)
}

func (s *criService) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	return s.logs.ReopenContainerLog(ctx, r)
}

func (s *criService) ExecSync(ctx context.Context, r *runtimeapi.ExecSyncRequest) (*runtimeapi.ExecSyncResponse, error) {
	return s.streams.ExecSync(ctx, r)
}

func (s *criService) Exec(ctx context.Context, r *runtimeapi.ExecRequest) (*runtimeapi.ExecResponse, error) {
	return s.streams.Exec(ctx, r)
}

func (s *criService) Attach(ctx context.Context, r *runtimeapi.AttachRequest) (*runtimeapi.AttachResponse, error) {
	return s.streams.Attach(ctx, r)
}

func (s *criService) PortForward(ctx context.Context, r *runtimeapi.PortForwardRequest) (*runtimeapi.PortForwardResponse, error) {
	return s.streams.PortForward(ctx, r)
}

func (s *criService) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	return s.stats.ContainerStats(ctx, r)
}

func (s *criService) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	return s.stats.ListContainerStats(ctx, r)
}

func (s *criService) PodSandboxStats(ctx context.Context, r *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	return s.stats.PodSandboxStats(ctx, r)
}

func (s *criService) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	return s.stats.ListPodSandboxStats(ctx, r)
}

func (s *criService) ListMetricDescriptors(ctx context.Context, r *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return s.stats.ListMetricDescriptors(ctx, r)
}

func (s *criService) ListPodSandboxMetrics(ctx context.Context, r *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	return s.stats.ListPodSandboxMetrics(ctx, r)
}

func (s *criService) ListImages(ctx context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	return s.images.ListImages(ctx, r)
}

func (s *criService) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	return s.images.ImageStatus(ctx, r)
}

func (s *criService) PullImage(ctx context.Context, r *runtimeapi.PullImageRequest) (*runtimeapi.PullImageResponse, error) {
	return s.images.PullImage(ctx, r)
}

func (s *criService) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	return s.images.RemoveImage(ctx, r)
}

func (s *criService) ImageFsInfo(ctx context.Context, r *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	return s.images.ImageFsInfo(ctx, r)
}

func (s *criService) GetContainerEvents(r *runtimeapi.GetEventsRequest, stream grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	return s.events.GetContainerEvents(r, stream)
}

// CheckpointContainer is not possible: the CRI wants one archive, and the
// engine's experimental checkpoints are directories that only it can restore.
func (*criService) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot write a container's checkpoint as an archive: %w", errdefs.ErrNotImplemented)
}

// CheckpointPod is not possible: the engine knows no pods, and has no way to
// stop several containers at one moment.
func (*criService) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) (*runtimeapi.CheckpointPodResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot checkpoint the containers of a pod together: %w", errdefs.ErrNotImplemented)
}

// RestorePod is not possible for the same reason as CheckpointPod.
func (*criService) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot restore the containers of a pod together: %w", errdefs.ErrNotImplemented)
}
