package sandbox

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/system"
	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/network/cni"
	"github.com/crishim/crishim/shim/pause"
	"github.com/crishim/crishim/shim/state"
)

func TestPlanOfAnUnsharedSandbox(t *testing.T) {
	t.Parallel()
	usual, err := planned(t, func(c *runtimeapi.PodSandboxConfig, f *facts) { c.Hostname, f.network = "web", cni.New(cni.Options{}) })
	if err != nil {
		t.Fatal(err)
	}
	s, err := planned(t, func(c *runtimeapi.PodSandboxConfig, f *facts) {
		c.Hostname, f.network, f.unshare = "web", cni.New(cni.Options{}), true
	})
	if err != nil {
		t.Fatal(err)
	}
	want := *usual.host
	want.NetworkMode, want.CapDrop, want.CapAdd = "host", []string{"ALL"}, []string{"SYS_ADMIN"}
	want.ExtraHosts = []string{"crishim.invalid:127.0.0.1"}
	if diff := cmp.Diff(&want, s.host); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
	wantConfig := *usual.config
	wantConfig.Cmd = []string{pause.Unshare}
	wantConfig.Labels = s.config.Labels
	if diff := cmp.Diff(&wantConfig, s.config); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
	// A shim that does not know the second label calls no plugin for the host's network.
	if got := s.config.Labels[state.LabelOwnNetwork]; got != podnetwork.NameHost {
		t.Errorf("got the network label %q", got)
	}
	decoded, ok := state.DecodeSandbox(s.name, s.config.Labels)
	if !ok || !decoded.Unshared || decoded.Network != podnetwork.NameCNI || decoded.OnHost("host") {
		t.Errorf("got %+v", decoded)
	}
}

func TestWhichPodsAreUnshared(t *testing.T) {
	t.Parallel()
	localhost := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "x"}
	type request struct {
		c    *runtimeapi.PodSandboxConfig
		sc   *runtimeapi.LinuxSandboxSecurityContext
		f    facts
		info system.Info
	}
	for name, c := range map[string]struct {
		options Options
		change  func(*request)
		want    bool
	}{
		"a kubelet's":               {Options{Unshare: true}, func(*request) {}, true},
		"root's":                    {Options{Unshare: true}, func(r *request) { r.sc.RunAsUser = &runtimeapi.Int64Value{} }, true},
		"with a kernel setting":     {Options{Unshare: true}, func(r *request) { r.c.Linux.Sysctls = map[string]string{"kernel.shm_rmid_forced": "1"} }, true},
		"not asked for":             {Options{}, func(*request) {}, false},
		"another pause image":       {Options{Unshare: true, PauseImage: "x"}, func(*request) {}, false},
		"another OCI runtime":       {Options{Unshare: true}, func(r *request) { r.f.handler = "kata" }, false},
		"the engine's bridge":       {Options{Unshare: true}, func(r *request) { r.f.network = podnetwork.Bridge{} }, false},
		"the host's network":        {Options{Unshare: true}, func(r *request) { r.f.network = podnetwork.Host{} }, false},
		"with a network setting":    {Options{Unshare: true}, func(r *request) { r.c.Linux.Sysctls = map[string]string{"net.core.somaxconn": "1"} }, false},
		"no host name":              {Options{Unshare: true}, func(r *request) { r.c.Hostname = "" }, false},
		"no name servers":           {Options{Unshare: true}, func(r *request) { r.c.DnsConfig.Servers = nil }, false},
		"a user's":                  {Options{Unshare: true}, func(r *request) { r.sc.RunAsUser = &runtimeapi.Int64Value{Value: 1} }, false},
		"SELinux":                   {Options{Unshare: true}, func(r *request) { r.sc.SelinuxOptions = &runtimeapi.SELinuxOption{Type: "x"} }, false},
		"AppArmor":                  {Options{Unshare: true}, func(r *request) { r.sc.Apparmor = localhost }, false},
		"seccomp":                   {Options{Unshare: true}, func(r *request) { r.f.seccomp = []byte("{}") }, false},
		"remapped users":            {Options{Unshare: true}, func(r *request) { r.info.SecurityOptions = []string{"name=userns"} }, false},
		"a rootless engine":         {Options{Unshare: true}, func(r *request) { r.info.SecurityOptions = []string{"name=rootless"} }, false},
		"another default":           {Options{Unshare: true}, func(r *request) { r.info.DefaultRuntime = "runsc" }, false},
		"an older engine":           {Options{Unshare: true}, func(r *request) { r.info.ServerVersion = "19.03.15" }, false},
		"an engine of no known age": {Options{Unshare: true}, func(r *request) { r.info.ServerVersion = "dev" }, false},
	} {
		r := request{
			c:    &runtimeapi.PodSandboxConfig{Hostname: "web", DnsConfig: &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}}},
			sc:   &runtimeapi.LinuxSandboxSecurityContext{},
			f:    facts{network: cni.New(cni.Options{})},
			info: system.Info{ServerVersion: "20.10.24+dfsg1", DefaultRuntime: "runc", SecurityOptions: []string{"name=seccomp,profile=default"}},
		}
		r.c.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: r.sc}
		c.change(&r)
		if got := New(c.options).unshares(r.c, r.f, r.info); got != c.want {
			t.Errorf("%s: got %v", name, got)
		}
	}
}

func TestUnmark(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "hosts")
	const rest = "127.0.0.1\tlocalhost\n::1\tlocalhost\n"
	if err := os.WriteFile(path, []byte(rest+"127.0.0.1\t"+hostsMark+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unmark(path); err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != rest {
		t.Errorf("got %q, %v", got, err)
	}
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Error("the file is another one now")
	}
	if err := unmark(path); err == nil {
		t.Error("a file without the mark: got no error")
	}
	if err := unmark(path + "no"); err == nil {
		t.Error("no file: got no error")
	}
}
