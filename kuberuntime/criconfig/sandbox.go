package criconfig

import (
	"maps"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
	v1 "k8s.io/api/core/v1"
)

// Generator makes CRI configurations for pods on one host.
type Generator struct {
	Host Host
	Dirs pod.Dirs
}

// Sandbox is the configuration of a pod's sandbox.
func (g *Generator) Sandbox(p *v1.Pod, attempt uint32) *runtimeapi.PodSandboxConfig {
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt},
		LogDirectory: g.Dirs.PodLogs(p),
		DnsConfig:    PodDNS(p, g.Host.DNS),
		PortMappings: portMappings(p),
		Labels:       podLabels(p),
		Annotations:  maps.Clone(p.Annotations),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{SecurityContext: sandboxSecurity(p), Sysctls: sysctls(p)},
	}
	if !p.Spec.HostNetwork {
		config.Hostname = Hostname(p)
	}
	return config
}

// podLabels are the pod's own labels and those by which the kubelet knows it.
func podLabels(p *v1.Pod) map[string]string {
	labels := map[string]string{}
	maps.Copy(labels, p.Labels)
	labels[pod.NameLabel] = p.Name
	labels[pod.NamespaceLabel] = p.Namespace
	labels[pod.UIDLabel] = string(p.UID)
	return labels
}

// sysctls are the pod's with dots: Kubernetes takes slashes too.
func sysctls(p *v1.Pod) map[string]string {
	if p.Spec.SecurityContext == nil || len(p.Spec.SecurityContext.Sysctls) == 0 {
		return nil
	}
	out := map[string]string{}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		out[sysctlName(s.Name)] = s.Value
	}
	return out
}

// sysctlName swaps the separators where the first one is a slash: net/ipv4/conf/eth0.1/x
// is net.ipv4.conf.eth0/1.x.
func sysctlName(name string) string {
	i := strings.IndexAny(name, "./")
	if i < 0 || name[i] == '.' {
		return name
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case '/':
			return '.'
		case '.':
			return '/'
		}
		return r
	}, name)
}

// portMappings are the ports that are wanted on the host. In the host's network they are
// there already.
func portMappings(p *v1.Pod) []*runtimeapi.PortMapping {
	if p.Spec.HostNetwork {
		return nil
	}
	var out []*runtimeapi.PortMapping
	for _, c := range manifest.Containers(p) {
		for _, port := range c.Ports {
			if port.HostPort == 0 {
				continue
			}
			out = append(out, &runtimeapi.PortMapping{
				Protocol: protocol(port.Protocol), ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	return out
}

func protocol(p v1.Protocol) runtimeapi.Protocol {
	switch p {
	case v1.ProtocolUDP:
		return runtimeapi.Protocol_UDP
	case v1.ProtocolSCTP:
		return runtimeapi.Protocol_SCTP
	}
	return runtimeapi.Protocol_TCP
}
