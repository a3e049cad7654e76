package sandbox

import (
	"context"
	"encoding/json"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/state"
)

// PodSandboxStatus describes a sandbox. It succeeds even if the addresses are unknown; otherwise a kubelet would
// consider the pod lost and create another.
func (s *Service) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	sb, err := state.FindSandbox(ctx, s.Engine, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	created := sb.Created.UnixNano()
	if sb.Created.IsZero() { // created by another shim
		if created, err = convert.UnixNano(sb.Detail.Created); err != nil {
			return nil, fmt.Errorf("pod sandbox %s: %w", sb.Detail.ID, err)
		}
	}
	readiness := runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	if sb.Detail.State.Running {
		readiness = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id:             sb.Detail.ID,
		Metadata:       sb.Metadata,
		State:          readiness,
		CreatedAt:      created,
		Network:        s.networkStatus(ctx, sb),
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: namespaceOptions(sb)}},
		Labels:         sb.Labels,
		Annotations:    sb.Annotations,
		RuntimeHandler: sb.RuntimeHandler,
	}}
	if r.GetVerbose() {
		resp.Info, err = verbose(sb)
	}
	return resp, err
}

func verbose(sb state.FoundSandbox) (map[string]string, error) {
	info, err := json.Marshal(map[string]any{
		"pid":          sb.Detail.State.Pid,
		"engineState":  sb.Detail.State.Status,
		"engineName":   sb.Detail.Name,
		"image":        sb.Detail.Image,
		"network":      sb.Network,
		"networkMode":  sb.Detail.HostConfig.NetworkMode,
		"cgroupParent": sb.Detail.HostConfig.CgroupParent,
		"portMappings": sb.Ports,
		"runtimeType":  sb.Detail.HostConfig.Runtime,
		"hostname":     sb.Detail.Config.Hostname,
		"sysctls":      sb.Detail.HostConfig.Sysctls,
		"securityOpt":  sb.Detail.HostConfig.SecurityOpt,
		"oomScoreAdj":  sb.Detail.HostConfig.OomScoreAdj,
	})
	if err != nil {
		return nil, fmt.Errorf("verbose status of pod sandbox %s: %w", sb.Detail.ID, err)
	}
	return map[string]string{"info": string(info)}, nil
}

func namespaceOptions(sb state.FoundSandbox) *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{Pid: sb.PID}
	if sb.Detail.HostConfig.NetworkMode.IsHost() {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if sb.Detail.HostConfig.IpcMode.IsHost() {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	if sb.Detail.HostConfig.PidMode.IsHost() {
		o.Pid = runtimeapi.NamespaceMode_NODE
	}
	return o
}

// UpdatePodSandboxResources does nothing, because the kubelet changes the pod's cgroup itself.
func (s *Service) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	sb, err := state.FindSandbox(ctx, s.Engine, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	s.Log.Debug("the resources of a pod sandbox changed", "id", sb.Detail.ID)
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
