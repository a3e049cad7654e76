package shim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/cache"
	"github.com/crishim/crishim/shim/container"
	"github.com/crishim/crishim/shim/events"
	"github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/logs"
	"github.com/crishim/crishim/shim/node"
	"github.com/crishim/crishim/shim/sandbox"
	"github.com/crishim/crishim/shim/stats"
	"github.com/crishim/crishim/shim/stream"
)

// criService answers both services of the CRI: each RPC by the service that its method
// here names.
type criService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	node       *node.Service
	sandboxes  *sandbox.Service
	containers *container.Service
	images     *image.Service
	streams    *stream.Server
	stats      *stats.Service
	events     *events.Service
	logs       *logs.Service
	lists      *cache.Cache // nil in a shim for one command
}

// invalidateLists makes the next lists ask the engine.
func (s *criService) invalidateLists() {
	if s.lists != nil {
		s.lists.Invalidate()
	}
}

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

// PodSandboxStatus of a daemon also has the statuses of the pod's containers and a time, for
// kubelets that use events. The kubelet drops events that are older than the time, so it is
// taken before the engine is asked. Without a time the kubelet asks for each container.
func (s *criService) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	at := time.Now().UnixNano()
	resp, err := s.sandboxes.PodSandboxStatus(ctx, r)
	if err != nil || s.lists == nil {
		return resp, err
	}
	list, err := s.containers.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: resp.GetStatus().GetId()}})
	if err != nil {
		return resp, nil
	}
	var statuses []*runtimeapi.ContainerStatus
	for _, c := range list.GetContainers() {
		status, err := s.containers.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		switch {
		case errdefs.IsNotFound(err):
			continue
		case err != nil:
			return resp, nil
		}
		statuses = append(statuses, status.GetStatus())
	}
	resp.ContainersStatuses, resp.Timestamp = statuses, at
	return resp, nil
}

func (s *criService) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	return s.containers.CreateContainer(ctx, r)
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
	// Not from the cache: an image that is gone by now makes the engine walk its disk, for which it has no limit,
	// and a hanging one would be asked for that first.
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

// The streamed lists are the plain ones in parts.

func (s *criService) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	list, err := s.ListPodSandbox(out.Context(), &runtimeapi.ListPodSandboxRequest{Filter: r.GetFilter()})
	return sendAll(list.GetItems(), err, func(part []*runtimeapi.PodSandbox) error {
		return out.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

func (s *criService) StreamContainers(r *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	list, err := s.ListContainers(out.Context(), &runtimeapi.ListContainersRequest{Filter: r.GetFilter()})
	return sendAll(list.GetContainers(), err, func(part []*runtimeapi.Container) error {
		return out.Send(&runtimeapi.StreamContainersResponse{Containers: part})
	})
}

func (s *criService) StreamContainerStats(r *runtimeapi.StreamContainerStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	list, err := s.ListContainerStats(out.Context(), &runtimeapi.ListContainerStatsRequest{Filter: r.GetFilter()})
	return sendAll(list.GetStats(), err, func(part []*runtimeapi.ContainerStats) error {
		return out.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

func (s *criService) StreamPodSandboxStats(r *runtimeapi.StreamPodSandboxStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	list, err := s.ListPodSandboxStats(out.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: r.GetFilter()})
	return sendAll(list.GetStats(), err, func(part []*runtimeapi.PodSandboxStats) error {
		return out.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

func (s *criService) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	list, err := s.ListPodSandboxMetrics(out.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	return sendAll(list.GetPodMetrics(), err, func(part []*runtimeapi.PodSandboxMetrics) error {
		return out.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}

func (s *criService) StreamImages(r *runtimeapi.StreamImagesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	list, err := s.ListImages(out.Context(), &runtimeapi.ListImagesRequest{Filter: r.GetFilter()})
	return sendAll(list.GetImages(), err, func(part []*runtimeapi.Image) error {
		return out.Send(&runtimeapi.StreamImagesResponse{Images: part})
	})
}

// chunkSize is how many items go into one message of a streamed list. Items with
// many labels and annotations have a few kB, so a message stays far below the
// limit that streaming is there to get around.
const chunkSize = 100

// sendAll sends every item exactly once, and no empty message.
func sendAll[T any](items []T, err error, send func([]T) error) error {
	if err != nil {
		return err
	}
	for part := range slices.Chunk(items, chunkSize) {
		if err := send(part); err != nil {
			return err
		}
	}
	return nil
}
