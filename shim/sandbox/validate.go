package sandbox

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"
	"unicode"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

// validate refuses what can be seen to be wrong without asking the engine.
func validate(c *runtimeapi.PodSandboxConfig) error {
	switch {
	case c == nil:
		return invalid("the pod sandbox config is missing")
	case c.GetMetadata() == nil:
		return invalid("the pod sandbox config has no metadata")
	case c.GetMetadata().GetName() == "":
		return invalid("the pod sandbox's metadata has no name")
	case len(c.GetMetadata().GetName()) > maxName:
		return invalid("the pod's name has %d bytes, more than %d", len(c.GetMetadata().GetName()), maxName)
	case len(c.GetMetadata().GetNamespace()) > maxName:
		return invalid("the pod's namespace has %d bytes, more than %d", len(c.GetMetadata().GetNamespace()), maxName)
	case len(c.GetMetadata().GetUid()) > maxName:
		return invalid("the pod's uid has %d bytes, more than %d", len(c.GetMetadata().GetUid()), maxName)
	case len(c.GetHostname()) > 63:
		return invalid("host name %q is longer than 63 characters", c.GetHostname())
	case strings.ContainsFunc(c.GetHostname(), notInHostname):
		return invalid("host name %q holds what is no letter, digit, '-', '_' or '.'", c.GetHostname())
	case c.GetLogDirectory() != "" && !filepath.IsAbs(c.GetLogDirectory()):
		return invalid("log directory %q is not absolute", c.GetLogDirectory())
	case c.GetWindows() != nil:
		return invalid("the pod sandbox config is for Windows, the engine runs Linux containers")
	}
	if err := validateDNS(c.GetDnsConfig()); err != nil {
		return err
	}
	for _, p := range c.GetPortMappings() {
		if err := validatePort(p); err != nil {
			return err
		}
	}
	return validateSecurity(c.GetLinux().GetSecurityContext())
}

// maxName bounds names and ids, of which Kubernetes knows none that is longer.
const maxName = 253

// notInHostname: the engine writes the name into the pod's hosts file, a line
// each, with names separated by spaces.
func notInHostname(r rune) bool {
	return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// validateDNS refuses what would add lines of its own to resolv.conf. What
// makes a good server or domain is left to the resolver.
func validateDNS(c *runtimeapi.DNSConfig) error {
	for what, values := range map[string][]string{
		"DNS server": c.GetServers(), "DNS search domain": c.GetSearches(), "DNS option": c.GetOptions(),
	} {
		for _, v := range values {
			if strings.ContainsFunc(v, unicode.IsControl) {
				return invalid("%s %q holds a control character", what, v)
			}
		}
	}
	return nil
}

func validatePort(p *runtimeapi.PortMapping) error {
	if _, err := protocol(p.GetProtocol()); err != nil {
		return err
	}
	if p.GetContainerPort() < 1 || p.GetContainerPort() > 65535 {
		return invalid("container port %d is not between 1 and 65535", p.GetContainerPort())
	}
	if p.GetHostPort() < 0 || p.GetHostPort() > 65535 {
		return invalid("host port %d is not between 0 and 65535", p.GetHostPort())
	}
	if ip := p.GetHostIp(); ip != "" {
		if _, err := netip.ParseAddr(ip); err != nil {
			return invalid("host address %q of port %d is no IP address", ip, p.GetContainerPort())
		}
	}
	return nil
}

func validateSecurity(sc *runtimeapi.LinuxSandboxSecurityContext) error {
	// What makes a good user is the same for a pause process and for a container.
	if _, err := convert.Wish(&runtimeapi.LinuxContainerSecurityContext{
		RunAsUser: sc.GetRunAsUser(), RunAsGroup: sc.GetRunAsGroup(),
		SupplementalGroups: sc.GetSupplementalGroups(), SupplementalGroupsPolicy: sc.GetSupplementalGroupsPolicy(),
	}, ""); err != nil {
		return err
	}
	return validateNamespaces(sc.GetNamespaceOptions())
}

func validateNamespaces(o *runtimeapi.NamespaceOption) error {
	if u := o.GetUsernsOptions(); u != nil && (u.GetMode() != runtimeapi.NamespaceMode_NODE || len(u.GetUids())+len(u.GetGids()) > 0) {
		return fmt.Errorf("the engine has no user namespace per pod: %w", errdefs.ErrNotImplemented)
	}
	for _, ns := range []struct {
		name string
		mode runtimeapi.NamespaceMode
	}{{"network", o.GetNetwork()}, {"ipc", o.GetIpc()}} {
		switch ns.mode {
		case runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_NODE:
		default:
			return invalid("%s namespace mode %s is not possible for a pod sandbox", ns.name, ns.mode)
		}
	}
	switch o.GetPid() {
	case runtimeapi.NamespaceMode_POD, runtimeapi.NamespaceMode_CONTAINER, runtimeapi.NamespaceMode_NODE:
		return nil
	}
	return invalid("pid namespace mode %s is not possible for a pod sandbox", o.GetPid())
}

func protocol(p runtimeapi.Protocol) (string, error) {
	switch p {
	case runtimeapi.Protocol_TCP:
		return "tcp", nil
	case runtimeapi.Protocol_UDP:
		return "udp", nil
	case runtimeapi.Protocol_SCTP:
		return "sctp", nil
	}
	return "", invalid("unknown protocol %d of a port mapping", p)
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrInvalidArgument)...)
}
