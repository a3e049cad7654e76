package shim

import (
	"context"
	"slices"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// chunk is how many items go into one message of a streamed list. Items with
// many labels and annotations have a few kB, so a message stays far below the
// limit that streaming is there to get around.
const chunk = 100

// listStreams answers the streamed lists with what the plain lists give.
type listStreams struct{ lists lists }

// lists are the plain lists.
type lists interface {
	ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error)
	ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
	ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error)
	ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error)
	ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error)
	ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error)
}

// StreamPodSandboxes streams ListPodSandbox.
func (l *listStreams) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest, s grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	list, err := l.lists.ListPodSandbox(s.Context(), &runtimeapi.ListPodSandboxRequest{Filter: r.GetFilter()})
	return sendAll(list.GetItems(), err, func(part []*runtimeapi.PodSandbox) error {
		return s.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

// StreamContainers streams ListContainers.
func (l *listStreams) StreamContainers(r *runtimeapi.StreamContainersRequest, s grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	list, err := l.lists.ListContainers(s.Context(), &runtimeapi.ListContainersRequest{Filter: r.GetFilter()})
	return sendAll(list.GetContainers(), err, func(part []*runtimeapi.Container) error {
		return s.Send(&runtimeapi.StreamContainersResponse{Containers: part})
	})
}

// StreamContainerStats streams ListContainerStats.
func (l *listStreams) StreamContainerStats(r *runtimeapi.StreamContainerStatsRequest, s grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	list, err := l.lists.ListContainerStats(s.Context(), &runtimeapi.ListContainerStatsRequest{Filter: r.GetFilter()})
	return sendAll(list.GetStats(), err, func(part []*runtimeapi.ContainerStats) error {
		return s.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

// StreamPodSandboxStats streams ListPodSandboxStats.
func (l *listStreams) StreamPodSandboxStats(r *runtimeapi.StreamPodSandboxStatsRequest, s grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	list, err := l.lists.ListPodSandboxStats(s.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: r.GetFilter()})
	return sendAll(list.GetStats(), err, func(part []*runtimeapi.PodSandboxStats) error {
		return s.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

// StreamPodSandboxMetrics streams ListPodSandboxMetrics.
func (l *listStreams) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, s grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	list, err := l.lists.ListPodSandboxMetrics(s.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	return sendAll(list.GetPodMetrics(), err, func(part []*runtimeapi.PodSandboxMetrics) error {
		return s.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}

// StreamImages streams ListImages.
func (l *listStreams) StreamImages(r *runtimeapi.StreamImagesRequest, s grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	list, err := l.lists.ListImages(s.Context(), &runtimeapi.ListImagesRequest{Filter: r.GetFilter()})
	return sendAll(list.GetImages(), err, func(part []*runtimeapi.Image) error {
		return s.Send(&runtimeapi.StreamImagesResponse{Images: part})
	})
}

// sendAll sends every item exactly once, and no empty message.
func sendAll[T any](items []T, err error, send func([]T) error) error {
	if err != nil {
		return err
	}
	for part := range slices.Chunk(items, chunk) {
		if err := send(part); err != nil {
			return err
		}
	}
	return nil
}
