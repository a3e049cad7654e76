package commands

import (
	"math"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/docker/go-units"
	"github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// readEnvs reads NAME=VALUE; NAME alone passes crishim's own variable on.
func readEnvs(env *Env, texts []string) ([]*runtimeapi.KeyValue, error) {
	var envs []*runtimeapi.KeyValue
	for _, text := range texts {
		name, value, found := strings.Cut(text, "=")
		if name == "" {
			return nil, usagef("--env %s: want NAME=VALUE", quote(text))
		}
		if !found {
			if value, found = env.LookupEnv(name); !found {
				continue
			}
		}
		envs = append(envs, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	}
	return envs, nil
}

// readVolumes reads HOST:CONTAINER[:OPTION,...].
func readVolumes(texts []string) ([]*runtimeapi.Mount, error) {
	var mounts []*runtimeapi.Mount
	for _, text := range texts {
		parts := strings.Split(text, ":")
		if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
			return nil, usagef("--volume %s: want HOST-PATH:CONTAINER-PATH[:ro]", quote(text))
		}
		host, err := filepath.Abs(parts[0])
		if err != nil {
			return nil, err
		}
		mount := &runtimeapi.Mount{HostPath: host, ContainerPath: parts[1]}
		if len(parts) == 3 {
			for option := range strings.SplitSeq(parts[2], ",") {
				if !mountOption(mount, option) {
					return nil, usagef("--volume %s: unknown option %s: want ro, rw, z, private, rslave or rshared", quote(text), quote(option))
				}
			}
		}
		mounts = append(mounts, mount)
	}
	return mounts, nil
}

func mountOption(m *runtimeapi.Mount, option string) bool {
	switch option {
	case "ro":
		m.Readonly = true
	case "rw", "private", "rprivate":
	case "z", "Z":
		m.SelinuxRelabel = true
	case "rslave":
		m.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case "rshared":
		m.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return false
	}
	return true
}

// readPorts reads [IP:]HOST:CONTAINER[/PROTOCOL]; an IPv6 address stands in
// brackets.
func readPorts(texts []string) ([]*runtimeapi.PortMapping, error) {
	var ports []*runtimeapi.PortMapping
	for _, text := range texts {
		mapping := &runtimeapi.PortMapping{}
		rest, protocol, found := strings.Cut(text, "/")
		if found {
			number, known := runtimeapi.Protocol_value[strings.ToUpper(protocol)]
			if !known {
				return nil, usagef("--publish %s: unknown protocol %s: want tcp, udp or sctp", quote(text), quote(protocol))
			}
			mapping.Protocol = runtimeapi.Protocol(number)
		}
		address, containerPort, ok := cutLast(rest, ":")
		ip, hostPort, hasIP := cutLast(address, ":")
		if !hasIP {
			ip, hostPort = "", address
		}
		var okHost, okContainer bool
		mapping.HostPort, okHost = port(hostPort)
		mapping.ContainerPort, okContainer = port(containerPort)
		okIP := true
		if hasIP {
			mapping.HostIp = strings.Trim(ip, "[]")
			_, err := netip.ParseAddr(mapping.HostIp)
			okIP = err == nil
		}
		if !ok || !okHost || !okContainer || !okIP {
			return nil, usagef("--publish %s: want [IP:]HOST-PORT:CONTAINER-PORT[/udp]", quote(text))
		}
		ports = append(ports, mapping)
	}
	return ports, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

func port(text string) (int32, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int32(n), err == nil && n > 0
}

func readSecurity(c *cli.Context) (*runtimeapi.LinuxContainerSecurityContext, error) {
	s := &runtimeapi.LinuxContainerSecurityContext{Privileged: c.Bool("privileged"), ReadonlyRootfs: c.Bool("read-only")}
	if add, drop := capabilities(c.StringSlice("cap-add")), capabilities(c.StringSlice("cap-drop")); len(add)+len(drop) > 0 {
		s.Capabilities = &runtimeapi.Capability{AddCapabilities: add, DropCapabilities: drop}
	}
	user, group, hasGroup := strings.Cut(c.String("user"), ":")
	if id, err := strconv.ParseInt(user, 10, 64); err == nil && id >= 0 {
		s.RunAsUser = &runtimeapi.Int64Value{Value: id}
	} else {
		s.RunAsUsername = user
	}
	if hasGroup {
		id, err := strconv.ParseInt(group, 10, 64)
		if err != nil || id < 0 || user == "" {
			return nil, usagef("--user %s: want USER[:GID], the group by its number", quote(c.String("user")))
		}
		s.RunAsGroup = &runtimeapi.Int64Value{Value: id}
	}
	return s, nil
}

// capabilities takes names with and without CAP_, also several at once.
func capabilities(texts []string) []string {
	var names []string
	for _, text := range texts {
		for name := range strings.SplitSeq(text, ",") {
			names = append(names, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
		}
	}
	return names
}

// cpuPeriod is the usual period of the CPU quota, in microseconds.
const cpuPeriod = 100_000

func readLimits(c *cli.Context) (*runtimeapi.LinuxContainerResources, error) {
	r := &runtimeapi.LinuxContainerResources{}
	if text := c.String("memory"); text != "" {
		bytes, err := units.RAMInBytes(binarySuffix(text))
		if err != nil || bytes <= 0 {
			return nil, usagef("--memory %s: want a size such as 512Mi or 1g", quote(text))
		}
		r.MemoryLimitInBytes = bytes
	}
	if text := c.String("cpus"); text != "" {
		cpus, err := strconv.ParseFloat(text, 64)
		if err != nil || !(cpus >= 0.001) || cpus > 1<<20 {
			return nil, usagef("--cpus %s: want a number of processors such as 0.5", quote(text))
		}
		r.CpuPeriod, r.CpuQuota = cpuPeriod, int64(math.Round(cpus*cpuPeriod))
	}
	return r, nil
}

// binarySuffix turns Kubernetes's 512Mi into what the units library knows.
func binarySuffix(text string) string {
	if strings.HasSuffix(text, "i") {
		return text + "B"
	}
	return text
}
