package sandbox

import (
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/go-connections/nat"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/state"
)

const (
	sandboxShares = 2        // the pause process needs hardly any CPU
	sandboxOOM    = -998     // the pause process must outlive the pod's containers
	shmSize       = 64 << 20 // shared by the pod; engines have different defaults
)

type facts struct {
	image        image.InspectResponse // image of the sandbox
	cgroupDriver string
	handler      string   // the engine's name of the OCI runtime; "" for its default
	seccomp      []byte   // content of a localhost profile
	security     []string // the engine's security options
	network      podnetwork.Plugin
	created      time.Time
	oomScore     int
}

// plan computes the engine's configuration for a valid request (dockershim: makeSandboxDockerConfig). It is pure.
func plan(r *runtimeapi.RunPodSandboxRequest, f facts) (lifecycle.Spec, error) {
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
	}, state.ImageLabels(f.image))
	if err != nil {
		return lifecycle.Spec{}, err
	}
	s := lifecycle.Spec{
		Name:   state.SandboxName(c.GetMetadata()),
		Config: &container.Config{Image: f.image.ID, Hostname: c.GetHostname(), Labels: labels},
		Host: &container.HostConfig{
			NetworkMode: container.NetworkMode(f.network.Mode()),
			IpcMode:     container.IPCModeShareable,
			ShmSize:     shmSize,
			Runtime:     f.handler,
			// The output is never read, and an unavailable log driver must not keep pods from starting.
			LogConfig:   container.LogConfig{Type: "none"},
			Init:        new(bool),
			OomScoreAdj: f.oomScore,
			Sysctls:     c.GetLinux().GetSysctls(),
			DNS:         c.GetDnsConfig().GetServers(),
			DNSSearch:   c.GetDnsConfig().GetSearches(), DNSOptions: c.GetDnsConfig().GetOptions(),
			Resources: container.Resources{CPUShares: sandboxShares},
		},
	}
	if namespaces(c).GetNetwork() == runtimeapi.NamespaceMode_NODE {
		// The host's network implies its UTS namespace and hostname.
		s.Host.UTSMode, s.Config.Hostname = "host", ""
	}
	if namespaces(c).GetIpc() == runtimeapi.NamespaceMode_NODE {
		s.Host.IpcMode = "host"
	}
	if namespaces(c).GetPid() == runtimeapi.NamespaceMode_NODE {
		s.Host.PidMode = "host"
	}
	if s.Host.CgroupParent, err = convert.CgroupParent(c.GetLinux().GetCgroupParent(), f.cgroupDriver); err != nil {
		return lifecycle.Spec{}, err
	}
	if f.network.Publishes() {
		if err := planPorts(&s, c.GetPortMappings()); err != nil {
			return lifecycle.Spec{}, err
		}
	}
	return s, planSecurity(&s, c.GetLinux().GetSecurityContext(), f)
}

func namespaces(c *runtimeapi.PodSandboxConfig) *runtimeapi.NamespaceOption {
	return c.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func planPorts(s *lifecycle.Spec, mappings []*runtimeapi.PortMapping) error {
	for _, m := range mappings {
		name, err := protocol(m.GetProtocol())
		if err != nil {
			return err
		}
		port := nat.Port(strconv.Itoa(int(m.GetContainerPort())) + "/" + name)
		if s.Config.ExposedPorts == nil {
			s.Config.ExposedPorts, s.Host.PortBindings = nat.PortSet{}, nat.PortMap{}
		}
		s.Config.ExposedPorts[port] = struct{}{}
		if m.GetHostPort() == 0 {
			continue
		}
		s.Host.PortBindings[port] = append(s.Host.PortBindings[port], nat.PortBinding{
			HostIP: m.GetHostIp(), HostPort: strconv.Itoa(int(m.GetHostPort())),
		})
	}
	return nil
}

// planSecurity never makes the pause process privileged. The engine lets privileged containers join its namespaces
// anyway.
func planSecurity(s *lifecycle.Spec, sc *runtimeapi.LinuxSandboxSecurityContext, f facts) error {
	s.Host.SecurityOpt = append(s.Host.SecurityOpt, "no-new-privileges")
	s.Host.SecurityOpt = append(s.Host.SecurityOpt, convert.SELinuxOptions(sc.GetSelinuxOptions())...)
	s.Host.ReadonlyRootfs = sc.GetReadonlyRootfs()
	if sc.GetRunAsUser() != nil {
		s.Config.User = strconv.FormatInt(sc.GetRunAsUser().GetValue(), 10)
		if sc.GetRunAsGroup() != nil {
			s.Config.User += ":" + strconv.FormatInt(sc.GetRunAsGroup().GetValue(), 10)
		}
	}
	for _, g := range sc.GetSupplementalGroups() {
		s.Host.GroupAdd = append(s.Host.GroupAdd, strconv.FormatInt(g, 10))
	}
	profile, err := seccompProfile(sc)
	if err != nil {
		return err
	}
	apparmor, err := convert.AppArmorProfile(sc.GetApparmor(), "")
	if err != nil {
		return err
	}
	options, err := convert.ProfileOptions(f.security, profile, f.seccomp, apparmor)
	s.Host.SecurityOpt = append(s.Host.SecurityOpt, options...)
	return err
}

func seccompProfile(sc *runtimeapi.LinuxSandboxSecurityContext) (*runtimeapi.SecurityProfile, error) {
	text := sc.GetSeccompProfilePath() //nolint:staticcheck // kubelets before 1.25 send only this
	if sc.GetSeccomp() == nil && text == "" {
		return &runtimeapi.SecurityProfile{}, nil
	}
	return convert.SeccompProfile(sc.GetSeccomp(), text)
}
