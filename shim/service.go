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

type (
	nodeService      = node.Service
	sandboxService   = sandbox.Service
	containerService = container.Service
	imageService     = image.Service
	streamService    = stream.Server
	statsService     = stats.Service
	eventService     = events.Service
	logService       = logs.Service
)

// criService implements both CRI services. Each RPC is a method of an embedded service or of criService; a missing one
// is a compile error.
type criService struct {
	runtimeapi.UnsafeRuntimeServiceServer
	runtimeapi.UnsafeImageServiceServer

	*nodeService
	*sandboxService
	*containerService
	*imageService
	*streamService
	*statsService
	*eventService
	*logService
	lists *cache.Cache // nil in a shim for one command
}

func (s *criService) invalidateLists() {
	if s.lists != nil {
		s.lists.Invalidate()
	}
}

// PodSandboxStatus of a daemon includes container statuses and a timestamp, for kubelets that use events. A kubelet drops
// events that are older than the timestamp. The timestamp is taken before the engine is asked, so that a kubelet does
// not drop events that occur during the call.
func (s *criService) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	at := time.Now().UnixNano()
	resp, err := s.sandboxService.PodSandboxStatus(ctx, r)
	if err != nil || s.lists == nil {
		return resp, err
	}
	list, err := s.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: resp.GetStatus().GetId()}})
	if err != nil {
		return resp, nil
	}
	var statuses []*runtimeapi.ContainerStatus
	for _, c := range list.GetContainers() {
		status, err := s.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
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

// CheckpointContainer is not implemented: CRI requires a single archive, but the engine's checkpoints are directories
// that only the engine can restore.
func (*criService) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot write a container's checkpoint as an archive: %w", errdefs.ErrNotImplemented)
}

// CheckpointPod is not implemented: the engine cannot stop several containers at the same instant.
func (*criService) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) (*runtimeapi.CheckpointPodResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot checkpoint the containers of a pod together: %w", errdefs.ErrNotImplemented)
}

func (*criService) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot restore the containers of a pod together: %w", errdefs.ErrNotImplemented)
}

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

// chunkSize items of a few kB are far below the message limit.
const chunkSize = 100

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
