package sandbox

import (
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/go-connections/nat"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	podnetwork "github.com/crishim/crishim/shim/network"
)

func planned(t *testing.T, change func(*runtimeapi.PodSandboxConfig, *facts)) (lifecycle.Spec, error) {
	t.Helper()
	c := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"},
		Linux:    &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{}},
	}
	f := facts{image: image.InspectResponse{ID: "sha256:x"}, network: podnetwork.Bridge{}, created: time.Unix(1, 0), oomScore: sandboxOOM, cgroupDriver: "cgroupfs",
		security: []string{"name=apparmor", "name=seccomp,profile=default"}}
	change(c, &f)
	return plan(&runtimeapi.RunPodSandboxRequest{Config: c}, f)
}

func TestPlanOfAPlainSandbox(t *testing.T) {
	t.Parallel()
	s, err := planned(t, func(*runtimeapi.PodSandboxConfig, *facts) {})
	if err != nil {
		t.Fatal(err)
	}
	want := &container.HostConfig{
		NetworkMode: "default", IpcMode: "shareable", ShmSize: 64 << 20, OomScoreAdj: -998, Init: new(bool),
		LogConfig: container.LogConfig{Type: "none"}, SecurityOpt: []string{"no-new-privileges"},
		Resources: container.Resources{CPUShares: 2},
	}
	if diff := cmp.Diff(want, s.Host); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
	if s.Name != "k8s_POD_web_ns_u_0" || s.Config.Image != "sha256:x" {
		t.Errorf("got name %s, image %s", s.Name, s.Config.Image)
	}
}

func TestPlan(t *testing.T) {
	t.Parallel()
	sc := func(c *runtimeapi.PodSandboxConfig) *runtimeapi.LinuxSandboxSecurityContext {
		return c.GetLinux().GetSecurityContext()
	}
	for name, c := range map[string]struct {
		change func(*runtimeapi.PodSandboxConfig, *facts)
		got    func(lifecycle.Spec) any
		want   any
	}{
		"DNS": {
			func(c *runtimeapi.PodSandboxConfig, _ *facts) {
				c.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"1.1.1.1"}, Searches: []string{"a.b"}, Options: []string{"ndots:5"}}
			},
			func(s lifecycle.Spec) any { return [][]string{s.Host.DNS, s.Host.DNSSearch, s.Host.DNSOptions} },
			[][]string{{"1.1.1.1"}, {"a.b"}, {"ndots:5"}},
		},
		"host namespaces": {
			func(c *runtimeapi.PodSandboxConfig, f *facts) {
				n := runtimeapi.NamespaceMode_NODE
				c.Hostname = "dropped"
				sc(c).NamespaceOptions = &runtimeapi.NamespaceOption{Network: n, Pid: n, Ipc: n}
				f.network = podnetwork.Host{}
			},
			func(s lifecycle.Spec) any {
				return []string{string(s.Host.NetworkMode), string(s.Host.PidMode), string(s.Host.IpcMode), string(s.Host.UTSMode), s.Config.Hostname}
			},
			[]string{"host", "host", "host", "host", ""},
		},
		"published ports, two host ports for one": {
			func(c *runtimeapi.PodSandboxConfig, _ *facts) {
				c.PortMappings = []*runtimeapi.PortMapping{
					{ContainerPort: 80, HostPort: 8080}, {ContainerPort: 80, HostPort: 8081, HostIp: "127.0.0.1"},
					{ContainerPort: 53, Protocol: runtimeapi.Protocol_UDP},
				}
			},
			func(s lifecycle.Spec) any { return []any{s.Config.ExposedPorts, s.Host.PortBindings} },
			[]any{
				nat.PortSet{"80/tcp": {}, "53/udp": {}},
				nat.PortMap{"80/tcp": {{HostPort: "8080"}, {HostIP: "127.0.0.1", HostPort: "8081"}}},
			},
		},
		"ports of a pod on the host's network": {
			func(c *runtimeapi.PodSandboxConfig, f *facts) {
				c.PortMappings, f.network = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: 80}}, podnetwork.Host{}
			},
			func(s lifecycle.Spec) any { return len(s.Config.ExposedPorts) + len(s.Host.PortBindings) },
			0,
		},
		"user, groups, read-only root": {
			func(c *runtimeapi.PodSandboxConfig, _ *facts) {
				sc(c).RunAsUser, sc(c).RunAsGroup = &runtimeapi.Int64Value{Value: 1}, &runtimeapi.Int64Value{Value: 2}
				sc(c).SupplementalGroups, sc(c).ReadonlyRootfs = []int64{3, 4}, true
			},
			func(s lifecycle.Spec) any { return []any{s.Config.User, s.Host.GroupAdd, s.Host.ReadonlyRootfs} },
			[]any{"1:2", []string{"3", "4"}, true},
		},
		"security options": {
			func(c *runtimeapi.PodSandboxConfig, f *facts) {
				sc(c).Seccomp = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/p"}
				sc(c).Apparmor = &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "mine"}
				sc(c).SelinuxOptions = &runtimeapi.SELinuxOption{Level: "s0"}
				f.seccomp = []byte("{ }\n")
			},
			func(s lifecycle.Spec) any { return s.Host.SecurityOpt },
			[]string{"no-new-privileges", "label=level:s0", "seccomp={}", "apparmor=mine"},
		},
		"a privileged pod's pause process is not": {
			func(c *runtimeapi.PodSandboxConfig, _ *facts) { sc(c).Privileged = true },
			func(s lifecycle.Spec) any { return s.Host.Privileged },
			false,
		},
		"sysctls, cgroup parent, handler": {
			func(c *runtimeapi.PodSandboxConfig, f *facts) {
				c.Linux.Sysctls, c.Linux.CgroupParent = map[string]string{"a": "b"}, "/kubepods/x"
				f.handler = "kata"
			},
			func(s lifecycle.Spec) any { return []any{s.Host.Sysctls, s.Host.CgroupParent, s.Host.Runtime} },
			[]any{map[string]string{"a": "b"}, "/kubepods/x", "kata"},
		},
		"a slice for the systemd driver": {
			func(c *runtimeapi.PodSandboxConfig, f *facts) {
				c.Linux.CgroupParent, f.cgroupDriver = "/kubepods.slice/kubepods-x.slice", "systemd"
			},
			func(s lifecycle.Spec) any { return s.Host.CgroupParent },
			"kubepods-x.slice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, err := planned(t, c.change)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, c.got(s)); diff != "" {
				t.Errorf("got + instead of -:\n%s", diff)
			}
		})
	}
}

func TestPlanRefusesProfilesThatCannotApply(t *testing.T) {
	t.Parallel()
	profile := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/p"}
	for name, change := range map[string]func(*runtimeapi.LinuxSandboxSecurityContext){
		"seccomp":  func(sc *runtimeapi.LinuxSandboxSecurityContext) { sc.Seccomp = profile },
		"apparmor": func(sc *runtimeapi.LinuxSandboxSecurityContext) { sc.Apparmor = profile },
	} {
		_, err := planned(t, func(c *runtimeapi.PodSandboxConfig, f *facts) {
			change(c.GetLinux().GetSecurityContext())
			f.seccomp, f.security = []byte("{}"), nil
		})
		if !errdefs.IsNotImplemented(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPlanRefusesACgroupThatIsNoSlice(t *testing.T) {
	t.Parallel()
	_, err := planned(t, func(c *runtimeapi.PodSandboxConfig, f *facts) {
		c.Linux.CgroupParent, f.cgroupDriver = "/kubepods", "systemd"
	})
	if err == nil {
		t.Error("got no error")
	}
}
