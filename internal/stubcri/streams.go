package stubcri

import (
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// The streamed lists send one object at a time.

func sendEach[T, R any](list []T, wrap func([]T) *R, out grpc.ServerStreamingServer[R]) error {
	for _, x := range list {
		if err := out.Send(wrap([]T{x})); err != nil {
			return err
		}
	}
	return nil
}

func (r *runtimeService) StreamPodSandboxes(req *runtimeapi.StreamPodSandboxesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxesResponse]) error {
	r.s.mu.Lock()
	list := r.s.listPods(req.GetFilter())
	r.s.mu.Unlock()
	return sendEach(list, func(l []*runtimeapi.PodSandbox) *runtimeapi.StreamPodSandboxesResponse {
		return &runtimeapi.StreamPodSandboxesResponse{PodSandboxes: l}
	}, out)
}

func (r *runtimeService) StreamContainers(req *runtimeapi.StreamContainersRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainersResponse]) error {
	r.s.mu.Lock()
	list := r.s.listContainers(req.GetFilter())
	r.s.mu.Unlock()
	return sendEach(list, func(l []*runtimeapi.Container) *runtimeapi.StreamContainersResponse {
		return &runtimeapi.StreamContainersResponse{Containers: l}
	}, out)
}

func (i *imageService) StreamImages(req *runtimeapi.StreamImagesRequest, out grpc.ServerStreamingServer[runtimeapi.StreamImagesResponse]) error {
	i.s.mu.Lock()
	list := i.s.listImages(req.GetFilter().GetImage().GetImage())
	i.s.mu.Unlock()
	return sendEach(list, func(l []*runtimeapi.Image) *runtimeapi.StreamImagesResponse {
		return &runtimeapi.StreamImagesResponse{Images: l}
	}, out)
}

func (r *runtimeService) StreamContainerStats(req *runtimeapi.StreamContainerStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamContainerStatsResponse]) error {
	r.s.mu.Lock()
	list := r.s.listStats(req.GetFilter())
	r.s.mu.Unlock()
	return sendEach(list, func(l []*runtimeapi.ContainerStats) *runtimeapi.StreamContainerStatsResponse {
		return &runtimeapi.StreamContainerStatsResponse{ContainerStats: l}
	}, out)
}

func (r *runtimeService) StreamPodSandboxStats(req *runtimeapi.StreamPodSandboxStatsRequest, out grpc.ServerStreamingServer[runtimeapi.StreamPodSandboxStatsResponse]) error {
	r.s.mu.Lock()
	list := r.s.listPodStats(req.GetFilter())
	r.s.mu.Unlock()
	return sendEach(list, func(l []*runtimeapi.PodSandboxStats) *runtimeapi.StreamPodSandboxStatsResponse {
		return &runtimeapi.StreamPodSandboxStatsResponse{PodSandboxStats: l}
	}, out)
}
