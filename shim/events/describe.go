package events

import (
	"context"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// A sandbox's process runs before its network is set up. Events about its start
// wait for the address, which kubelets take from them.
const (
	addressWait = 5 * time.Second
	addressTick = 50 * time.Millisecond
)

// describe puts the state of the pod into an event.
func (s *Service) describe(ctx context.Context, t *tracker, c change) *runtimeapi.ContainerEventResponse {
	if c.kind == stopped && !c.c.isSandbox {
		// Until now the container was reported as running, at times that may be later
		// than its end, and a kubelet drops an event that is older than what it knows.
		c.at = max(c.at, time.Now().UnixNano())
	}
	status := s.pod(ctx, t, c)
	return &runtimeapi.ContainerEventResponse{
		ContainerId:        c.id,
		ContainerEventType: c.kind,
		CreatedAt:          c.at,
		PodSandboxStatus:   status,
		ContainersStatuses: s.containers(ctx, c.c.sandboxID),
	}
}

// pod is the sandbox's status, or the last that is known of it.
func (s *Service) pod(ctx context.Context, t *tracker, c change) *runtimeapi.PodSandboxStatus {
	status := s.status(ctx, c.c.sandboxID)
	if c.c.isSandbox && (c.kind == created || c.kind == started) {
		for end := time.Now().Add(addressWait); unconnected(status) && time.Now().Before(end) && ctx.Err() == nil; {
			time.Sleep(addressTick)
			status = s.status(ctx, c.c.sandboxID)
		}
	}
	if status != nil {
		t.pods[c.c.sandboxID] = status
		return status
	}
	return lastStatus(t, c)
}

func (s *Service) status(ctx context.Context, id string) *runtimeapi.PodSandboxStatus {
	resp, err := s.statuses.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		s.log.Debug("an event about a pod sandbox that cannot be described", "id", id, "err", err)
		return nil
	}
	return resp.GetStatus()
}

// unconnected says whether a sandbox runs on a network of its own and has no
// address on it yet.
func unconnected(status *runtimeapi.PodSandboxStatus) bool {
	return status.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && status != nil && status.GetNetwork().GetIp() == "" &&
		status.GetLinux().GetNamespaces().GetOptions().GetNetwork() != runtimeapi.NamespaceMode_NODE
}

func lastStatus(t *tracker, c change) *runtimeapi.PodSandboxStatus {
	if last, ok := t.pods[c.c.sandboxID]; ok {
		gone := proto.Clone(last).(*runtimeapi.PodSandboxStatus)
		gone.State, gone.Network = runtimeapi.PodSandboxState_SANDBOX_NOTREADY, &runtimeapi.PodSandboxNetworkStatus{}
		return gone
	}
	if !c.c.isSandbox {
		return nil
	}
	return &runtimeapi.PodSandboxStatus{
		Id: c.id, Metadata: c.c.sandbox.Metadata, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Labels: c.c.sandbox.Labels, Annotations: c.c.sandbox.Annotations, RuntimeHandler: c.c.sandbox.RuntimeHandler,
	}
}

// containers describes the pod's containers; one that goes meanwhile is left
// out.
func (s *Service) containers(ctx context.Context, sandboxID string) []*runtimeapi.ContainerStatus {
	list, err := s.engine.ContainerList(ctx, container.ListOptions{All: true, Filters: filters.NewArgs(
		filters.Arg("label", state.LabelType+"="+state.TypeContainer),
		filters.Arg("label", state.LabelSandboxID+"="+sandboxID),
	)})
	if err != nil {
		s.log.Debug("an event about a pod whose containers cannot be listed", "id", sandboxID, "err", err)
	}
	var statuses []*runtimeapi.ContainerStatus
	for _, c := range list {
		resp, err := s.statuses.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		if err == nil {
			statuses = append(statuses, resp.GetStatus())
		}
	}
	return statuses
}
