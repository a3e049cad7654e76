package sandbox

import (
	"context"
	"encoding/json"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/state"
)

// PodSandboxStatus describes a sandbox. Unknown addresses are no error: a kubelet would take
// the pod for lost and create another.
func (s *Service) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	b, err := state.FindSandbox(ctx, s.engine, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	created := b.Created.UnixNano()
	if b.Created.IsZero() { // another shim made it
		if created, err = convert.UnixNano(b.Detail.Created); err != nil {
			return nil, fmt.Errorf("pod sandbox %s: %w", b.Detail.ID, err)
		}
	}
	readiness := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if b.Detail.State.Running {
		readiness = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id:             b.Detail.ID,
		Metadata:       b.Metadata,
		State:          readiness,
		CreatedAt:      created,
		Network:        s.networkStatus(ctx, b),
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: namespaceOptions(b)}},
		Labels:         b.Labels,
		Annotations:    b.Annotations,
		RuntimeHandler: b.RuntimeHandler,
	}}
	if r.GetVerbose() {
		resp.Info, err = verbose(b)
	}
	return resp, err
}

func verbose(b state.FoundSandbox) (map[string]string, error) {
	info, err := json.Marshal(map[string]any{
		"pid":          b.Detail.State.Pid,
		"engineState":  b.Detail.State.Status,
		"engineName":   b.Detail.Name,
		"image":        b.Detail.Image,
		"network":      b.Network,
		"networkMode":  b.Detail.HostConfig.NetworkMode,
		"cgroupParent": b.Detail.HostConfig.CgroupParent,
		"portMappings": b.Ports,
		"runtimeType":  b.Detail.HostConfig.Runtime,
		"hostname":     b.Detail.Config.Hostname,
		"sysctls":      b.Detail.HostConfig.Sysctls,
		"securityOpt":  b.Detail.HostConfig.SecurityOpt,
		"oomScoreAdj":  b.Detail.HostConfig.OomScoreAdj,
	})
	if err != nil {
		return nil, fmt.Errorf("verbose status of pod sandbox %s: %w", b.Detail.ID, err)
	}
	return map[string]string{"info": string(info)}, nil
}

func namespaceOptions(b state.FoundSandbox) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{Pid: b.PID}
	if b.Detail.HostConfig.NetworkMode.IsHost() {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if b.Detail.HostConfig.IpcMode.IsHost() {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	if b.Detail.HostConfig.PidMode.IsHost() {
		o.Pid = runtimeapi.NamespaceMode_NODE
	}
	return o
}

// UpdatePodSandboxResources has nothing to do: the kubelet has changed the pod's cgroup
// itself, and the pause process has no limits of its own.
func (s *Service) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	b, err := state.FindSandbox(ctx, s.engine, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	s.log.Debug("the resources of a pod sandbox changed", "id", b.Detail.ID)
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
