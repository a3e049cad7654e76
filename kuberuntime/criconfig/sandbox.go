// Package criconfig turns a defaulted Pod into the CRI messages that create its sandbox
// and its containers: environment, security, resources, DNS, hosts file, mounts. All of it
// is pure; what only the host knows comes in as a Host, what only the runtime knows as
// arguments.
package criconfig

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Host is what a pod's configuration needs to know about the host.
type Host struct {
	Name        string
	IPs         []string
	CPUs        int
	Memory      int64
	Storage     int64   // size of the root file system
	HugePages   []int64 // sizes of huge pages that the kernel has, in bytes
	SwapControl bool    // swap can be limited
	DNS         DNS
	HostsFile   string // text of the host's own /etc/hosts
}

// Generator makes CRI configurations for pods on one host.
type Generator struct {
	Host Host
	Dirs pod.Dirs
}

// Sandbox is the configuration of a pod's sandbox.
func (g *Generator) Sandbox(p *v1.Pod, attempt uint32) *runtimeapi.PodSandboxConfig {
	all := map[string]string{}
	maps.Copy(all, p.Labels)
	maps.Copy(all, labels(p))
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt},
		LogDirectory: g.Dirs.PodLogs(p),
		DnsConfig:    PodDNS(p, g.Host.DNS),
		PortMappings: portMappings(p),
		Labels:       all,
		Annotations:  maps.Clone(p.Annotations),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{SecurityContext: sandboxSecurity(p), Sysctls: sysctls(p)},
	}
	if !p.Spec.HostNetwork {
		config.Hostname = Hostname(p)
	}
	return config
}

// labels are those by which the kubelet knows a pod.
func labels(p *v1.Pod) map[string]string {
	return map[string]string{kube.LabelPodName: p.Name, kube.LabelPodNamespace: p.Namespace, kube.LabelPodUID: string(p.UID)}
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
				// The names are the same, and no name is TCP.
				Protocol: runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]), ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP,
			})
		}
	}
	return out
}
