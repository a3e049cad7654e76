// Package criconfig converts a defaulted Pod to the CRI messages that create its sandbox and containers: environment,
// security, resources, DNS, hosts file, mounts. Except for ReadHost, all functions are pure: they take the facts of the
// host as a Host and the facts of the runtime as arguments.
package criconfig

import (
	"cmp"
	"encoding/json"
	"maps"
	"net"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type Generator struct {
	Host Host
	Dirs pod.Dirs
}

// Sandbox returns the configuration of a pod's sandbox, like the kubelet's generatePodSandboxConfig.
func (g *Generator) Sandbox(p *v1.Pod, attempt uint32) *runtimeapi.PodSandboxConfig {
	all := map[string]string{}
	maps.Copy(all, p.Labels)
	maps.Copy(all, labels(p))
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: p.Name, Namespace: p.Namespace, Uid: string(p.UID), Attempt: attempt},
		LogDirectory: g.Dirs.PodLogs(p),
		DnsConfig:    podDNS(p, g.Host.DNS),
		PortMappings: portMappings(p),
		Labels:       all,
		Annotations:  maps.Clone(p.Annotations),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{SecurityContext: sandboxSecurity(p), Sysctls: sysctls(p), CgroupParent: CgroupParent(p)},
	}
	if !p.Spec.HostNetwork {
		config.Hostname = hostname(p)
	}
	return config
}

// DefaultCgroupParent returns the cgroup parent of a handler's pods that do not set a parent, from the configuration in
// containerd's verbose status. With the systemd driver, containerd starts pods only in a slice. system.slice is the
// default of Docker and CRI-O. DefaultCgroupParent returns "" for other runtimes and drivers.
func DefaultCgroupParent(config, handler string) string {
	var parsed struct {
		Containerd struct {
			DefaultRuntimeName string
			Runtimes           map[string]struct{ Options struct{ SystemdCgroup bool } }
		}
	}
	_ = json.Unmarshal([]byte(config), &parsed) // another runtime's configuration may have another format
	if parsed.Containerd.Runtimes[cmp.Or(handler, parsed.Containerd.DefaultRuntimeName)].Options.SystemdCgroup {
		return "system.slice"
	}
	return ""
}

func labels(p *v1.Pod) map[string]string {
	return map[string]string{kube.LabelPodName: p.Name, kube.LabelPodNamespace: p.Namespace, kube.LabelPodUID: string(p.UID)}
}

// sysctls returns the pod's sysctls with dots in their names. Kubernetes also accepts slashes.
func sysctls(p *v1.Pod) map[string]string {
	out := map[string]string{}
	for _, s := range p.Spec.SecurityContext.Sysctls {
		out[sysctlName(s.Name)] = s.Value
	}
	return out
}

// sysctlName swaps dots and slashes if the first separator is a slash: net/ipv4/conf/eth0.1/x becomes
// net.ipv4.conf.eth0/1.x.
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
			protocol := runtimeapi.Protocol(runtimeapi.Protocol_value[string(port.Protocol)]) // manifests and the CRI use the same names; TCP is 0
			out = append(out, &runtimeapi.PortMapping{Protocol: protocol, ContainerPort: port.ContainerPort, HostPort: port.HostPort, HostIp: port.HostIP})
		}
	}
	return out
}

type dnsConfig struct{ Servers, Searches, Options []string }

// Limits of resolvers and of the kubelet.
const (
	maxServers  = 3
	maxSearches = 32
)

func parseResolv(text string) dnsConfig {
	var dns dnsConfig
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			dns.Servers = append(dns.Servers, fields[1])
		case "search", "domain":
			dns.Searches = fields[1:] // the last line wins
		case "options":
			dns.Options = append(dns.Options, fields[1:]...)
		}
	}
	return dns
}

// onlyLoopback reports whether all servers are on the host's loopback. A pod with its own network cannot reach them.
func (d dnsConfig) onlyLoopback() bool {
	remote := func(s string) bool { ip := net.ParseIP(s); return ip == nil || !ip.IsLoopback() }
	return len(d.Servers) > 0 && !slices.ContainsFunc(d.Servers, remote)
}

// podDNS returns a pod's resolver configuration, or nil for the runtime's default, like the kubelet's GetPodDNS.
// crishim has no cluster DNS: ClusterFirst means the host's resolver, as in a kubelet without clusterDNS. If the host
// has only loopback servers, a pod with its own network does not get them.
func podDNS(p *v1.Pod, host dnsConfig) *runtimeapi.DNSConfig {
	dns := host
	if p.Spec.DNSPolicy == v1.DNSNone {
		dns = dnsConfig{}
	} else if host.onlyLoopback() && !p.Spec.HostNetwork {
		dns.Servers = nil
	}
	if c := p.Spec.DNSConfig; c != nil {
		dns.Servers = appendNew(dns.Servers, c.Nameservers)
		dns.Searches = appendNew(dns.Searches, c.Searches)
		dns.Options = mergeOptions(dns.Options, c.Options)
	}
	if len(dns.Servers) == 0 && len(dns.Searches) == 0 && len(dns.Options) == 0 {
		return nil
	}
	return &runtimeapi.DNSConfig{
		Servers:  dns.Servers[:min(len(dns.Servers), maxServers)],
		Searches: dns.Searches[:min(len(dns.Searches), maxSearches)],
		Options:  dns.Options,
	}
}

func appendNew(list, more []string) []string {
	list = slices.Clone(list)
	for _, s := range more {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list
}

// mergeOptions returns the host's and the pod's options. A pod's option replaces a host's option of the same name.
func mergeOptions(host []string, own []v1.PodDNSConfigOption) []string {
	name := func(o string) string { n, _, _ := strings.Cut(o, ":"); return n }
	out := slices.DeleteFunc(slices.Clone(host), func(o string) bool {
		return slices.ContainsFunc(own, func(mine v1.PodDNSConfigOption) bool { return mine.Name == name(o) })
	})
	for _, o := range own {
		text := o.Name
		if o.Value != nil && *o.Value != "" {
			text += ":" + *o.Value
		}
		out = append(out, text)
	}
	return out
}

// HostsFile returns the text of a pod's /etc/hosts. With hostNetwork it is the host's file plus the pod's aliases.
func HostsFile(p *v1.Pod, host Host, podIPs []string) string {
	var out strings.Builder
	if p.Spec.HostNetwork {
		out.WriteString("# Host's hosts file, with the pod's aliases added by crishim.\n")
		out.WriteString(strings.TrimRight(host.HostsFile, "\n") + "\n")
	} else {
		out.WriteString("# Pod's hosts file, written by crishim.\n" +
			"127.0.0.1\tlocalhost\n" +
			"::1\tlocalhost ip6-localhost ip6-loopback\n" +
			"fe00::0\tip6-localnet\n" +
			"fe00::0\tip6-mcastprefix\n" +
			"fe00::1\tip6-allnodes\n" +
			"fe00::2\tip6-allrouters\n")
		for _, ip := range podIPs {
			out.WriteString(ip + "\t" + hostname(p) + "\n")
		}
	}
	for _, alias := range p.Spec.HostAliases {
		out.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return out.String()
}

// hostname returns the pod's host name: spec.hostnameOverride, else spec.hostname, else the truncated pod name.
func hostname(p *v1.Pod) string {
	const longest = 63
	name := p.Name
	if len(name) > longest {
		name = strings.TrimRight(name[:longest], "-.")
	}
	return cmp.Or(ptr.Deref(p.Spec.HostnameOverride, ""), p.Spec.Hostname, name)
}
