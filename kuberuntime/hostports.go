package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

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

// takeHostPorts refuses a pod whose host ports another pod has, as the kubelet's admission does: CNI's portmap would give
// the port to both. Until release, other pods of this runtime wait.
func (m *Manager) takeHostPorts(ctx context.Context, p *v1.Pod) (release func() error, err error) {
	wanted := hostPorts(p)
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
		if other.UID == string(p.UID) {
			continue
		}
		for _, taken := range m.takenPorts(ctx, other) {
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

// takenPorts returns the host ports of a pod by its manifest, or by the annotations that a kubelet gives containers.
func (m *Manager) takenPorts(ctx context.Context, p *pod.Pod) (out []v1.ContainerPort) {
	if record, own := m.ownRecord(ctx, p.UID); own {
		return hostPorts(record.Pod)
	}
	for _, c := range p.Containers {
		var ports []v1.ContainerPort
		if json.Unmarshal([]byte(c.GetAnnotations()[pod.PortsAnnotation]), &ports) == nil { // what cannot be read is another tool's
			out = append(out, ports...)
		}
	}
	return out
}

func protocolOf(p v1.ContainerPort) v1.Protocol { return cmp.Or(p.Protocol, v1.ProtocolTCP) }

func samePort(a, b v1.ContainerPort) bool {
	anywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return a.HostPort == b.HostPort && protocolOf(a) == protocolOf(b) && (a.HostIP == b.HostIP || anywhere(a.HostIP) || anywhere(b.HostIP))
}
