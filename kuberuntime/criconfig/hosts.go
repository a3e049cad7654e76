package criconfig

import (
	"strings"

	v1 "k8s.io/api/core/v1"
)

// HostsFile is the text of the /etc/hosts that a pod's containers get: the host's own one
// with the aliases for a pod in the host's network, else one that knows the pod itself.
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
			out.WriteString(ip + "\t" + Hostname(p) + "\n")
		}
	}
	for _, alias := range p.Spec.HostAliases {
		out.WriteString(alias.IP + "\t" + strings.Join(alias.Hostnames, "\t") + "\n")
	}
	return out.String()
}

// Hostname is the pod's host name: what it asks for, else its name as far as it fits.
func Hostname(p *v1.Pod) string {
	const longest = 63
	if p.Spec.HostnameOverride != nil && *p.Spec.HostnameOverride != "" {
		return *p.Spec.HostnameOverride
	}
	if p.Spec.Hostname != "" {
		return p.Spec.Hostname
	}
	if len(p.Name) <= longest {
		return p.Name
	}
	return strings.TrimRight(p.Name[:longest], "-.")
}
