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

// lists are the plain lists, which the streamed ones are made of.
type lists interface {
	ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error)
	ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
	ListContainerStats(context.Context, *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error)
	ListPodSandboxStats(context.Context, *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error)
	ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error)
	ListImages(context.Context, *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error)
}

// StreamPodSandboxes streams ListPodSandbox.
func (s *criService) StreamPodSandboxes(r *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	list, err := s.lists.ListPodSandbox(out.Context(), &runtimeapi.ListPodSandboxRequest{Filter: r.GetFilter()})
	return sendAll(list.GetItems(), err, func(part []*runtimeapi.PodSandbox) error {
		return out.Send(&runtimeapi.StreamPodSandboxesResponse{PodSandboxes: part})
	})
}

// StreamContainers streams ListContainers.
func (s *criService) StreamContainers(r *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	list, err := s.lists.ListContainers(out.Context(), &runtimeapi.ListContainersRequest{Filter: r.GetFilter()})
	return sendAll(list.GetContainers(), err, func(part []*runtimeapi.Container) error {
		return out.Send(&runtimeapi.StreamContainersResponse{Containers: part})
	})
}

// StreamContainerStats streams ListContainerStats.
func (s *criService) StreamContainerStats(r *runtimeapi.StreamContainerStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	list, err := s.lists.ListContainerStats(out.Context(), &runtimeapi.ListContainerStatsRequest{Filter: r.GetFilter()})
	return sendAll(list.GetStats(), err, func(part []*runtimeapi.ContainerStats) error {
		return out.Send(&runtimeapi.StreamContainerStatsResponse{ContainerStats: part})
	})
}

// StreamPodSandboxStats streams ListPodSandboxStats.
func (s *criService) StreamPodSandboxStats(r *runtimeapi.StreamPodSandboxStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	list, err := s.lists.ListPodSandboxStats(out.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: r.GetFilter()})
	return sendAll(list.GetStats(), err, func(part []*runtimeapi.PodSandboxStats) error {
		return out.Send(&runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: part})
	})
}

// StreamPodSandboxMetrics streams ListPodSandboxMetrics.
func (s *criService) StreamPodSandboxMetrics(_ *runtimeapi.StreamPodSandboxMetricsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxMetricsResponse]) error {
	list, err := s.lists.ListPodSandboxMetrics(out.Context(), &runtimeapi.ListPodSandboxMetricsRequest{})
	return sendAll(list.GetPodMetrics(), err, func(part []*runtimeapi.PodSandboxMetrics) error {
		return out.Send(&runtimeapi.StreamPodSandboxMetricsResponse{PodSandboxMetrics: part})
	})
}

// StreamImages streams ListImages.
func (s *criService) StreamImages(r *runtimeapi.StreamImagesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	list, err := s.lists.ListImages(out.Context(), &runtimeapi.ListImagesRequest{Filter: r.GetFilter()})
	return sendAll(list.GetImages(), err, func(part []*runtimeapi.Image) error {
		return out.Send(&runtimeapi.StreamImagesResponse{Images: part})
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
