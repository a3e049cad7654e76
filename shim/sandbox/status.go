package sandbox

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// PodSandboxStatus describes a sandbox. That its addresses cannot be told just
// now is no failure: a kubelet would take the pod for lost and make it anew.
func (s *Service) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	b, err := s.find(ctx, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Id:             b.c.ID,
		Metadata:       b.Metadata,
		State:          b.state(),
		CreatedAt:      b.created,
		Network:        s.networkStatus(ctx, b),
		Linux:          &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: b.namespaces()}},
		Labels:         b.Labels,
		Annotations:    b.Annotations,
		RuntimeHandler: b.RuntimeHandler,
	}}
	if r.GetVerbose() {
		resp.Info, err = verbose(b)
	}
	return resp, err
}

// find looks a sandbox up by its id.
func (s *Service) find(ctx context.Context, id string) (box, error) {
	if id == "" {
		return box{}, invalid("the pod sandbox id is empty")
	}
	c, err := s.engine.ContainerInspect(ctx, id)
	if errdefs.IsNotFound(err) {
		return box{}, fmt.Errorf("pod sandbox %q: %w", id, errdefs.ErrNotFound)
	}
	if err != nil {
		return box{}, fmt.Errorf("pod sandbox %q: %w", id, err)
	}
	return fromInspect(c)
}

func (s *Service) networkStatus(ctx context.Context, b box) *runtimeapi.PodSandboxNetworkStatus {
	status := &runtimeapi.PodSandboxNetworkStatus{}
	if !b.running() {
		return status
	}
	pod, done := b.pod()
	defer done()
	addresses, err := s.plugin(b).Addresses(ctx, pod)
	if err != nil {
		s.log.Warn("the addresses of a pod sandbox are not known", "id", b.c.ID, "err", err)
		return status
	}
	for i, a := range addresses {
		if i == 0 {
			status.Ip = a
			continue
		}
		status.AdditionalIps = append(status.AdditionalIps, &runtimeapi.PodIP{Ip: a})
	}
	return status
}

func verbose(b box) (map[string]string, error) {
	info, err := json.Marshal(map[string]any{
		"pid":          b.c.State.Pid,
		"engineState":  b.c.State.Status,
		"engineName":   b.c.Name,
		"image":        b.c.Image,
		"network":      b.Network,
		"networkMode":  b.c.HostConfig.NetworkMode,
		"cgroupParent": b.c.HostConfig.CgroupParent,
		"portMappings": b.Ports,
		"runtimeType":  b.c.HostConfig.Runtime,
		"hostname":     b.c.Config.Hostname,
		"sysctls":      b.c.HostConfig.Sysctls,
		"securityOpt":  b.c.HostConfig.SecurityOpt,
		"oomScoreAdj":  b.c.HostConfig.OomScoreAdj,
	})
	if err != nil {
		return nil, fmt.Errorf("verbose status of pod sandbox %s: %w", b.c.ID, err)
	}
	return map[string]string{"info": string(info)}, nil
}
