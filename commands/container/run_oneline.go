package container

import (
	"cmp"
	"encoding/json"
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
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/shellwords"
	"github.com/crishim/crishim/kuberuntime"
)

// oneLine holds the flags of run IMAGE that are not bound to a field of the two configurations.
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

func (o *runOptions) oneLineFlags(lookupEnv func(string) (string, bool)) []urfave.Flag {
	return []urfave.Flag{
		cli.StringFlag(&o.image, "image", "Run `IMAGE`; all arguments are the command"),
		cli.StringFlag(&o.name, "name", "Assign `NAME` to the pod and the container"),
		cli.StringFlag(&o.podRef, "pod", "Create the container in `POD`, which must be running"),
		envFlag(lookupEnv, &o.container.Envs, "Set the environment variable `NAME=VALUE`; NAME alone takes the value from crishim's environment", "e"),
		cli.ListFlag(&o.container.Mounts, parseVolume, "volume", "Bind mount `HOST:CONTAINER[:ro]`", "v"),
		cli.ListFlag(&o.pod.PortMappings, parsePort, "publish", "Publish a port of the pod to the host: `[IP:]HOST:CONTAINER[/udp]`", "p"),
		cli.WordFlag(&o.network, []string{"pod", "host"}, "network", "Connect the pod to `NETWORK`: pod, host"),
		cli.StringFlag(&o.user, "user", "Run as `USER[:GROUP]`; with two files the user for the registry, as in crictl", "u"),
		cli.StringFlag(&o.container.WorkingDir, "workdir", "Run in the working directory `DIR`", "w"),
		cli.Typed(&o.container.Command, func(text string) ([]string, error) { return strings.Fields(text), nil }, "entrypoint", "Overwrite the entrypoint of the image with `COMMAND`"),
		cli.StringFlag(&o.pod.Hostname, "hostname", "Set the `HOSTNAME` of the pod"),
		cli.LabelsFlag(&o.labels, "label", "Set the label `KEY=VALUE` on the pod and the container"),
		cli.BoolFlag(&o.security.Privileged, "privileged", "Give extended privileges to the container"),
		cli.BoolFlag(&o.security.ReadonlyRootfs, "read-only", "Mount the root filesystem read-only"),
		capabilitiesFlag(&o.capabilities.AddCapabilities, "cap-add", "Add the Linux capability `CAP`"),
		capabilitiesFlag(&o.capabilities.DropCapabilities, "cap-drop", "Drop the Linux capability `CAP`"),
		cli.Typed(&o.resources.MemoryLimitInBytes, parseLimit, "memory", "Limit memory to `SIZE`: 512Mi, 1g", "m"),
		cli.Typed(&o.resources.CpuQuota, parseCPUs, "cpus", "Limit CPU time to `N` processors: 0.5, 2"),
		cli.BoolFlag(&o.remove, "rm", "Remove the container and the pod when the command ends"),
		cli.BoolFlag(&o.detach, "detach", "Run in the background and print the container ID", "d"),
	}
}

// completeOneLine checks the flags together and completes the two configurations.
func (o *runOptions) completeOneLine(c *urfave.Context, args []string) error {
	switch {
	case o.detach && o.remove:
		return &cli.UsageError{Text: "--rm and --detach: choose one", Next: "`crishim rmp -f` removes it later"}
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
	if err := checkUTF8(args); err != nil {
		return err
	}
	pod, container := cmp.Or(o.name, "run-"+cli.NewUID()[:8]), cmp.Or(o.name, "main")
	if named, err := reference.ParseNormalizedNamed(o.image); err == nil && o.name == "" {
		container = path.Base(reference.Path(named))
	}
	o.pod.Metadata, o.pod.Labels = &runtimeapi.PodSandboxMetadata{Name: pod}, o.labels
	o.pod.Annotations = map[string]string{kube.AnnotationRun: "true"}
	o.pod.Hostname = cmp.Or(o.pod.Hostname, pod)
	o.pod.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{Privileged: o.security.Privileged}}
	o.container.Metadata, o.container.Labels = &runtimeapi.ContainerMetadata{Name: container}, o.labels
	o.container.Image, o.container.Args = &runtimeapi.ImageSpec{Image: o.image}, args
	o.container.Annotations = map[string]string{}
	o.container.Stdin, o.container.StdinOnce, o.container.Tty = o.session.Stdin, o.session.Stdin, o.session.TTY
	if o.network == "host" {
		o.pod.Hostname = "" // the pod then has the hostname of the node
		o.pod.Linux.SecurityContext.NamespaceOptions = o.security.NamespaceOptions
		o.security.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	}
	// The container has its own process namespace, as in a pod by default.
	o.security.NamespaceOptions.Pid = runtimeapi.NamespaceMode_CONTAINER
	if len(o.capabilities.AddCapabilities)+len(o.capabilities.DropCapabilities) > 0 {
		o.security.Capabilities = o.capabilities
	}
	if o.resources.CpuQuota > 0 {
		o.resources.CpuPeriod = cpuPeriod
	}
	if len(o.pod.PortMappings) > 0 {
		// apply and sync read host ports from this annotation, which the kubelet also sets.
		ports, err := json.Marshal(kuberuntime.HostPortsOf(o.pod.PortMappings))
		if err != nil {
			return err
		}
		o.container.Annotations[kube.AnnotationPorts] = string(ports)
	}
	return o.setUser()
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

// envFlag takes NAME=VALUE, or NAME for the value of crishim's own variable.
func envFlag(lookupEnv func(string) (string, bool), to *[]*runtimeapi.KeyValue, usage string, aliases ...string) urfave.Flag {
	flag := cli.NewTyped(func(text string) error {
		name, value, found := strings.Cut(text, "=")
		if name == "" {
			return errors.New("must be NAME=VALUE")
		}
		if !found {
			if value, found = lookupEnv(name); !found {
				return nil
			}
		}
		*to = append(*to, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
		return nil
	}, "env", usage, aliases)
	flag.Repeated = true
	return flag
}

func parseVolume(text string) (*runtimeapi.Mount, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || parts[0] == "" || !strings.HasPrefix(parts[1], "/") {
		return nil, errors.New("must be HOST-PATH:CONTAINER-PATH[:ro]")
	}
	if !strings.ContainsRune(parts[0], '/') && parts[0] != "." && parts[0] != ".." {
		return nil, cli.WithHint(errors.New("there are no named volumes here: the first part is a path on the host"), "`-v %s` is a directory in the current directory", shellwords.Quote("./"+text))
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

// parsePort parses [IP:]HOST:CONTAINER[/PROTOCOL], with an IPv6 address in brackets.
func parsePort(text string) (*runtimeapi.PortMapping, error) {
	mapping, wrong := &runtimeapi.PortMapping{}, errors.New("must be [IP:]HOST-PORT:CONTAINER-PORT[/udp]")
	rest, protocol, found := strings.Cut(text, "/")
	if found {
		number, known := runtimeapi.Protocol_value[strings.ToUpper(protocol)]
		if !known {
			return nil, fmt.Errorf("unknown protocol %s: must be tcp, udp or sctp", cli.Quote(protocol))
		}
		mapping.Protocol = runtimeapi.Protocol(number)
	}
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

// capabilitiesFlag takes names with or without CAP_, separated by commas.
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

// cpuPeriod is the kernel's default period of the CPU quota, in microseconds.
const cpuPeriod = 100_000

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

// parseLimit refuses 0, which means no limit for a new container.
func parseLimit(text string) (int64, error) {
	size, err := parseSize(text)
	if err == nil && size == 0 {
		err = errors.New("must be a size above 0 such as 512Mi or 1g")
	}
	return size, err
}

// parseSize parses a number of bytes, such as Kubernetes' 512Mi.
func parseSize(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	if strings.HasSuffix(text, "i") {
		text += "B" // the units library parses MiB, but not Mi
	}
	size, err := units.RAMInBytes(text)
	if err != nil || size < 0 {
		return 0, errors.New("must be a size such as 512Mi or 1g")
	}
	return size, nil
}
