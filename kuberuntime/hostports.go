package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

func hostPorts(p *v1.Pod) (out []v1.ContainerPort) {
	for _, c := range manifest.Containers(p) {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				out = append(out, port)
			}
		}
	}
	return out
}

// HostPortsOf converts the host ports of a sandbox to ports of a manifest.
func HostPortsOf(mappings []*runtimeapi.PortMapping) (out []v1.ContainerPort) {
	for _, m := range mappings {
		if m.GetHostPort() > 0 {
			out = append(out, v1.ContainerPort{HostIP: m.GetHostIp(), HostPort: m.GetHostPort(), ContainerPort: m.GetContainerPort(), Protocol: v1.Protocol(m.GetProtocol().String())})
		}
	}
	return out
}

// TakeHostPorts refuses a pod if another pod has one of its host ports, as the kubelet's admission does: CNI's portmap
// would give the port to both. Until release is called, TakeHostPorts blocks for other pods of this runtime with host
// ports, also in other processes.
func (m *Manager) TakeHostPorts(ctx context.Context, uid string, wanted []v1.ContainerPort) (release func() error, err error) {
	if len(wanted) == 0 {
		return func() error { return nil }, nil
	}
	own, err := m.identify(ctx)
	if err != nil {
		return nil, err
	}
	release, err = m.lock(ctx, own.key+"\x00host ports", nil)
	if err != nil {
		return nil, err
	}
	others, err := m.GetPods(ctx, false)
	for _, other := range others {
		if other.UID == uid {
			continue
		}
		ports, failed := m.takenPorts(ctx, other)
		err = cmp.Or(err, failed)
		for _, taken := range ports {
			if i := slices.IndexFunc(wanted, func(w v1.ContainerPort) bool { return samePort(w, taken) }); i >= 0 {
				err = fmt.Errorf("host port %d/%s is taken by pod %s", taken.HostPort, protocolOf(taken), other.FullName())
			}
		}
	}
	if err != nil {
		_ = release()
		return nil, err
	}
	return release, nil
}

// takenPorts returns the host ports of a pod from its manifest. Without a manifest they come from the status of its
// sandboxes and from the annotations that a kubelet sets on containers.
func (m *Manager) takenPorts(ctx context.Context, p *pod.Pod) (out []v1.ContainerPort, err error) {
	if record, own := m.ownRecord(ctx, p.UID); own {
		return hostPorts(record.Pod), nil
	}
	for _, s := range p.Sandboxes {
		if s.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue
		}
		resp, err := m.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: s.GetId(), Verbose: true})
		var info struct {
			Config       *runtimeapi.PodSandboxConfig `json:"config"`       // reported by containerd
			PortMappings []*runtimeapi.PortMapping    `json:"portMappings"` // reported by crishim's shim
		}
		if err = ignoreNotFound(err); err != nil {
			return nil, fmt.Errorf("find the host ports of pod %s: %w", p.FullName(), err)
		}
		if json.Unmarshal([]byte(resp.GetInfo()["info"]), &info) == nil {
			out = append(out, HostPortsOf(slices.Concat(info.Config.GetPortMappings(), info.PortMappings))...)
		}
	}
	for _, c := range p.Containers {
		var ports []v1.ContainerPort
		if json.Unmarshal([]byte(c.GetAnnotations()[pod.PortsAnnotation]), &ports) == nil { // another tool's annotation may have another format
			out = append(out, ports...)
		}
	}
	return out, nil
}

func protocolOf(p v1.ContainerPort) v1.Protocol { return cmp.Or(p.Protocol, v1.ProtocolTCP) }

func samePort(a, b v1.ContainerPort) bool {
	anywhere := func(ip string) bool {
		at, err := netip.ParseAddr(ip)
		return err != nil || at.IsUnspecified()
	}
	return a.HostPort > 0 && a.HostPort == b.HostPort && protocolOf(a) == protocolOf(b) && (a.HostIP == b.HostIP || anywhere(a.HostIP) || anywhere(b.HostIP))
}
