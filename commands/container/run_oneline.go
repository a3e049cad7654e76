package container

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	"github.com/docker/go-units"
	urfave "github.com/urfave/cli/v2"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
)

// oneLine is what run makes its configurations of where it gets none, apart from what the flags
// put there themselves.
type oneLine struct {
	image, name, network, user string
	labels                     map[string]string
	security                   *runtimeapi.LinuxContainerSecurityContext
	resources                  *runtimeapi.LinuxContainerResources
	capabilities               *runtimeapi.Capability
}

func newRunOptions() *runOptions {
	o := &runOptions{oneLine: oneLine{
		network:      "pod",
		security:     &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{}},
		resources:    &runtimeapi.LinuxContainerResources{},
		capabilities: &runtimeapi.Capability{},
	}}
	o.container = &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: o.security, Resources: o.resources}}
	o.pod = &runtimeapi.PodSandboxConfig{}
	return o
}

// oneLineFlags make sense only where run makes its configurations itself.
func (o *runOptions) oneLineFlags(env *cli.Env) []urfave.Flag {
	return []urfave.Flag{
		cli.StringFlag(&o.image, "image", "run `IMAGE`; all arguments are the command"),
		cli.StringFlag(&o.name, "name", "call the pod and the container `NAME`"),
		cli.StringFlag(&o.podRef, "pod", "make the container in `POD`, which runs already"),
		envFlag(env, &o.container.Envs, "set the variable `NAME=VALUE`, or pass NAME on", "e"),
		cli.ListFlag(&o.container.Mounts, parseVolume, "volume", "mount `HOST:CONTAINER[:ro]`", "v"),
		cli.ListFlag(&o.pod.PortMappings, parsePort, "publish", "map `[IP:]HOST:CONTAINER[/udp]`", "p"),
		cli.WordFlag(&o.network, []string{"pod", "host"}, "network", "`NETWORK`: pod, host"),
		cli.StringFlag(&o.user, "user", "run as `USER[:GROUP]`; with two files the user for the registry, as in crictl", "u"),
		cli.StringFlag(&o.container.WorkingDir, "workdir", "start in `DIRECTORY`", "w"),
		cli.Typed(&o.container.Command, func(text string) ([]string, error) { return strings.Fields(text), nil }, "entrypoint", "run `COMMAND` in place of the image's entry point"),
		cli.StringFlag(&o.pod.Hostname, "hostname", "the pod's `HOSTNAME`"),
		cli.LabelsFlag(&o.labels, "label", "label the pod and the container `KEY=VALUE`"),
		cli.BoolFlag(&o.security.Privileged, "privileged", "give extended privileges to the container"),
		cli.BoolFlag(&o.security.ReadonlyRootfs, "read-only", "mount the root filesystem read-only"),
		capabilitiesFlag(&o.capabilities.AddCapabilities, "cap-add", "add the Linux capability `CAP`"),
		capabilitiesFlag(&o.capabilities.DropCapabilities, "cap-drop", "drop the Linux capability `CAP`"),
		cli.Typed(&o.resources.MemoryLimitInBytes, parseLimit, "memory", "limit memory to `SIZE`: 512Mi, 1g", "m"),
		cli.Typed(&o.resources.CpuQuota, parseCPUs, "cpus", "limit CPU time to `N` processors: 0.5, 2"),
		cli.BoolFlag(&o.remove, "rm", "remove container and pod at the end"),
		cli.BoolFlag(&o.detach, "detach", "print the container's id and return", "d"),
	}
}

// completeOneLine puts into the configurations what the flags have not.
func (o *runOptions) completeOneLine(c *urfave.Context, args []string) error {
	switch {
	case o.detach && o.remove:
		return &cli.UsageError{Text: "--rm and --detach: nobody stays behind to remove the container", Next: "crishim rmp -f removes it later"}
	case o.detach && o.session.Stdin:
		return cli.Usagef("--detach and --stdin contradict each other")
	case o.podRef != "" && (c.IsSet("publish") || c.IsSet("hostname")):
		return cli.Usagef("--publish and --hostname are for new pods, not for --pod")
	case o.network == "host" && len(o.pod.PortMappings) > 0:
		return cli.Usagef("--publish does nothing with --network host")
	}
	if o.image == "" {
		o.image, args = args[0], args[1:]
	}
	container := o.name
	if container == "" { // the image's last part
		container = "main"
		if named, err := reference.ParseNormalizedNamed(o.image); err == nil {
			container = path.Base(reference.Path(named))
		}
	}
	o.configure(cmp.Or(o.name, "run-"+cli.NewUID()[:8]), container, args)
	return o.setUser()
}

func (o *runOptions) configure(pod, container string, args []string) {
	o.pod.Metadata, o.pod.Labels = &runtimeapi.PodSandboxMetadata{Name: pod}, o.labels
	o.pod.Hostname = cmp.Or(o.pod.Hostname, pod)
	o.pod.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{Privileged: o.security.Privileged}}
	o.container.Metadata, o.container.Labels = &runtimeapi.ContainerMetadata{Name: container}, o.labels
	o.container.Image, o.container.Args = &runtimeapi.ImageSpec{Image: o.image}, args
	o.container.Stdin, o.container.StdinOnce, o.container.Tty = o.session.Stdin, o.session.Stdin, o.session.TTY
	if o.network == "host" {
		o.pod.Hostname = "" // the host's own
		o.pod.Linux.SecurityContext.NamespaceOptions = o.security.NamespaceOptions
		o.security.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	}
	// A process namespace of its own, as a pod has by default.
	o.security.NamespaceOptions.Pid = runtimeapi.NamespaceMode_CONTAINER
	if len(o.capabilities.AddCapabilities)+len(o.capabilities.DropCapabilities) > 0 {
		o.security.Capabilities = o.capabilities
	}
	if o.resources.CpuQuota > 0 {
		o.resources.CpuPeriod = cpuPeriod
	}
}

func (o *runOptions) setUser() error {
	user, group, hasGroup := strings.Cut(o.user, ":")
	if id, err := strconv.ParseInt(user, 10, 64); err == nil && id >= 0 {
		o.security.RunAsUser = &runtimeapi.Int64Value{Value: id}
	} else {
		o.security.RunAsUsername = user
	}
	if hasGroup {
		id, err := strconv.ParseInt(group, 10, 64)
		if err != nil || id < 0 || user == "" {
			return cli.Invalid("user", o.user, "must be USER[:GID], the group by its number")
		}
		o.security.RunAsGroup = &runtimeapi.Int64Value{Value: id}
	}
	return nil
}

// envFlag takes NAME=VALUE; NAME alone passes crishim's own variable on.
func envFlag(env *cli.Env, to *[]*runtimeapi.KeyValue, usage string, aliases ...string) urfave.Flag {
	flag := cli.NewTyped(func(text string) error {
		name, value, found := strings.Cut(text, "=")
		if name == "" {
			return errors.New("must be NAME=VALUE")
		}
		if !found {
			if value, found = env.LookupEnv(name); !found {
				return nil
			}
		}
		*to = append(*to, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
		return nil
	}, "env", usage, aliases)
	flag.Repeated = true
	return flag
}

// parseVolume reads HOST:CONTAINER[:OPTION,...].
func parseVolume(text string) (*runtimeapi.Mount, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
		return nil, errors.New("must be HOST-PATH:CONTAINER-PATH[:ro]")
	}
	host, err := filepath.Abs(parts[0])
	if err != nil {
		return nil, err
	}
	m := &runtimeapi.Mount{HostPath: host, ContainerPath: parts[1]}
	if len(parts) < 3 {
		return m, nil
	}
	for option := range strings.SplitSeq(parts[2], ",") {
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
			return nil, fmt.Errorf("unknown option %s: must be ro, rw, z, private, rslave or rshared", cli.Quote(option))
		}
	}
	return m, nil
}

// parsePort reads [IP:]HOST:CONTAINER[/PROTOCOL]; an IPv6 address stands in
// brackets.
func parsePort(text string) (*runtimeapi.PortMapping, error) {
	mapping := &runtimeapi.PortMapping{}
	rest, protocol, found := strings.Cut(text, "/")
	if found {
		number, known := runtimeapi.Protocol_value[strings.ToUpper(protocol)]
		if !known {
			return nil, fmt.Errorf("unknown protocol %s: must be tcp, udp or sctp", cli.Quote(protocol))
		}
		mapping.Protocol = runtimeapi.Protocol(number)
	}
	wrong := errors.New("must be [IP:]HOST-PORT:CONTAINER-PORT[/udp]")
	last := strings.LastIndexByte(rest, ':')
	if last < 0 {
		return nil, wrong
	}
	host, container := rest[:last], rest[last+1:]
	if i := strings.LastIndexByte(host, ':'); i >= 0 {
		mapping.HostIp = strings.Trim(host[:i], "[]")
		host = host[i+1:]
		if _, err := netip.ParseAddr(mapping.HostIp); err != nil {
			return nil, wrong
		}
	}
	hostPort, hostErr := strconv.ParseUint(host, 10, 16)
	containerPort, containerErr := strconv.ParseUint(container, 10, 16)
	if hostErr != nil || containerErr != nil || hostPort == 0 || containerPort == 0 {
		return nil, wrong
	}
	mapping.HostPort, mapping.ContainerPort = int32(hostPort), int32(containerPort)
	return mapping, nil
}

// capabilitiesFlag takes names with and without CAP_, also several at once.
func capabilitiesFlag(to *[]string, name, usage string) urfave.Flag {
	flag := cli.NewTyped(func(text string) error {
		for capability := range strings.SplitSeq(strings.ToUpper(text), ",") {
			*to = append(*to, strings.TrimPrefix(capability, "CAP_"))
		}
		return nil
	}, name, usage, nil)
	flag.Repeated = true
	return flag
}

// cpuPeriod is the usual period of the CPU quota, in microseconds.
const cpuPeriod = 100_000

// parseCPUs returns the quota of a number of processors.
func parseCPUs(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	cpus, err := strconv.ParseFloat(text, 64)
	if err != nil || !(cpus >= 0.001) || cpus > 1<<20 {
		return 0, errors.New("must be a number of processors such as 0.5")
	}
	return int64(math.Round(cpus * cpuPeriod)), nil
}

// parseLimit is parseSize for a new container, where 0 would be no limit.
func parseLimit(text string) (int64, error) {
	size, err := parseSize(text)
	if err == nil && size == 0 {
		err = errors.New("must be a size above 0 such as 512Mi or 1g")
	}
	return size, err
}

// parseSize reads bytes, also in Kubernetes's 512Mi.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if strings.HasSuffix(text, "i") {
		text += "B" // as the units library has it
	}
	size, err := units.RAMInBytes(text)
	if err != nil || size < 0 {
		return 0, errors.New("must be a size such as 512Mi or 1g")
	}
	return size, nil
}
