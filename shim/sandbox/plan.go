package sandbox

import (
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/go-connections/nat"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/state"
)

const (
	sandboxShares = 2        // the pause process needs next to nothing
	sandboxOOM    = -998     // and must outlive the pod's containers
	shmSize       = 64 << 20 // shared by the pod; engines differ in their default
)

// facts are what a plan needs to know beside the request.
type facts struct {
	image        string // id of the sandbox image
	cgroupDriver string
	handler      string   // the engine's name of the OCI runtime; "" for its default
	seccomp      []byte   // the profile file of a localhost profile
	security     []string // the engine's security options
	network      podnetwork.Plugin
	created      time.Time
	oomScore     int
}

// spec is what the engine is asked to create.
type spec struct {
	name   string
	config *container.Config
	host   *container.HostConfig
}

// plan turns a valid request into the engine's terms. It touches nothing.
func plan(r *runtimeapi.RunPodSandboxRequest, f facts) (spec, error) {
	c := r.GetConfig()
	labels, err := state.EncodeSandbox(state.Sandbox{
		Metadata:       c.GetMetadata(),
		Labels:         c.GetLabels(),
		Annotations:    c.GetAnnotations(),
		RuntimeHandler: r.GetRuntimeHandler(),
		Created:        f.created,
		Ports:          c.GetPortMappings(),
		Network:        f.network.Name(),
		PID:            namespaces(c).GetPid(),
	})
	if err != nil {
		return spec{}, err
	}
	s := spec{
		name:   state.SandboxName(c.GetMetadata()),
		config: &container.Config{Image: f.image, Hostname: hostname(c), Labels: labels},
		host: &container.HostConfig{
			NetworkMode: container.NetworkMode(f.network.Mode()),
			IpcMode:     container.IPCModeShareable,
			ShmSize:     shmSize,
			Runtime:     f.handler,
			// Nothing reads the output of the pause process, and a log driver
			// that is down must not keep pods from starting.
			LogConfig: container.LogConfig{Type: "none"},
			Init:      new(bool),
			Sysctls:   c.GetLinux().GetSysctls(),
			DNS:       c.GetDnsConfig().GetServers(),
			DNSSearch: c.GetDnsConfig().GetSearches(), DNSOptions: c.GetDnsConfig().GetOptions(),
			Resources: container.Resources{CPUShares: sandboxShares},
		},
	}
	s.host.OomScoreAdj = f.oomScore
	planNamespaces(s.host, namespaces(c))
	if s.host.CgroupParent, err = convert.CgroupParent(c.GetLinux().GetCgroupParent(), f.cgroupDriver); err != nil {
		return spec{}, err
	}
	if f.network.Publishes() {
		if err := planPorts(&s, c.GetPortMappings()); err != nil {
			return spec{}, err
		}
	}
	return s, planSecurity(&s, c.GetLinux().GetSecurityContext(), f)
}

func namespaces(c *runtimeapi.PodSandboxConfig) *runtimeapi.NamespaceOption {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// hostname is left to the host where the pod shares its network, because then
// it shares its UTS namespace as well.
func hostname(c *runtimeapi.PodSandboxConfig) string {
	if namespaces(c).GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return ""
	}
	return c.GetHostname()
}

func planNamespaces(hc *container.HostConfig, o *runtimeapi.NamespaceOption) {
	if o.GetNetwork() == runtimeapi.NamespaceMode_NODE {
		hc.UTSMode = "host"
	}
	if o.GetIpc() == runtimeapi.NamespaceMode_NODE {
		hc.IpcMode = "host"
	}
	if o.GetPid() == runtimeapi.NamespaceMode_NODE {
		hc.PidMode = "host"
	}
}

func planPorts(s *spec, mappings []*runtimeapi.PortMapping) error {
	for _, m := range mappings {
		name, err := protocol(m.GetProtocol())
		if err != nil {
			return err
		}
		port := nat.Port(strconv.Itoa(int(m.GetContainerPort())) + "/" + name)
		if s.config.ExposedPorts == nil {
			s.config.ExposedPorts, s.host.PortBindings = nat.PortSet{}, nat.PortMap{}
		}
		s.config.ExposedPorts[port] = struct{}{}
		if m.GetHostPort() == 0 {
			continue
		}
		s.host.PortBindings[port] = append(s.host.PortBindings[port], nat.PortBinding{
			HostIP: m.GetHostIp(), HostPort: strconv.Itoa(int(m.GetHostPort())),
		})
	}
	return nil
}
