package shim

import (
	"context"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// podStatuses is PodSandboxStatus with the pod's containers in it, and the time
// that all of it is true of: what a kubelet asks for that lives on events. It
// compares that time with those of the events, so it must not be later than the
// last one that the answer knows of.
type podStatuses struct {
	pods       statuser
	containers members
	asOf       func() (int64, bool) // nil: a shim for one command, whose client has no use for it
}

type statuser interface {
	PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error)
}

type members interface {
	ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
	ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error)
}

// PodSandboxStatus describes a sandbox and its containers.
func (p *podStatuses) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	if p.asOf == nil {
		return p.pods.PodSandboxStatus(ctx, r)
	}
	at, ok := p.asOf()
	if !ok {
		at = time.Now().UnixNano()
	}
	resp, err := p.pods.PodSandboxStatus(ctx, r)
	if err != nil {
		return nil, err
	}
	statuses, err := p.statuses(ctx, resp.GetStatus().GetId())
	if err == nil {
		resp.ContainersStatuses, resp.Timestamp = statuses, at
	}
	// Without a timestamp a kubelet asks for each container.
	return resp, nil
}

func (p *podStatuses) statuses(ctx context.Context, id string) ([]*runtimeapi.ContainerStatus, error) {
	list, err := p.containers.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: id}})
	if err != nil {
		return nil, err
	}
	var statuses []*runtimeapi.ContainerStatus
	for _, c := range list.GetContainers() {
		s, err := p.containers.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if errdefs.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		statuses = append(statuses, s.GetStatus())
	}
	return statuses, nil
}
