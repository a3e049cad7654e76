package sandbox_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/pause"
	"github.com/crishim/crishim/shim/sandbox"
	"github.com/crishim/crishim/shim/state"
)

type fakeNetwork struct {
	network.Bridge
	calls    []string
	setUp    error
	tearDown error
}

func (f *fakeNetwork) SetUp(_ context.Context, p network.Pod) error {
	f.calls = append(f.calls, "up "+p.Metadata.GetName())
	return f.setUp
}

func (f *fakeNetwork) TearDown(_ context.Context, p network.Pod) error {
	f.calls = append(f.calls, "down "+p.Metadata.GetName())
	return f.tearDown
}

func inMemory() (*sandbox.Service, *enginetest.Memory, *fakeNetwork) {
	engine, plugin := enginetest.NewMemory(), &fakeNetwork{}
	return sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: plugin}}), engine, plugin
}

func request(c *runtimeapi.PodSandboxConfig) *runtimeapi.RunPodSandboxRequest {
	return &runtimeapi.RunPodSandboxRequest{Config: c}
}

func TestRunLoadsThePauseImageOnce(t *testing.T) {
	s, engine, plugin := inMemory()
	run(t, s, uniqueConfig())
	run(t, s, uniqueConfig())
	loads := 0
	for _, call := range engine.Calls() {
		if call == "ImageLoad" {
			loads++
		}
	}
	if loads != 1 || slices.Contains(engine.Calls(), "ImagePull") {
		t.Errorf("got %d loads in %v, want one and no pull", loads, engine.Calls())
	}
	if img, err := engine.ImageInspect(t.Context(), pause.Ref); err != nil || img.ID == "" {
		t.Errorf("got %v, %v", img, err)
	}
	if want := []string{"up box", "up box"}; !slices.Equal(plugin.calls, want) {
		t.Errorf("got network calls %v, want %v", plugin.calls, want)
	}
}

// TestAnotherImageWithThePauseImagesName checks that a sandbox runs the built-in image even if another has its name.
func TestAnotherImageWithThePauseImagesName(t *testing.T) {
	s, engine, _ := inMemory()
	foreign := engine.AddImage(pause.Ref)
	for range 2 {
		c, err := engine.ContainerInspect(t.Context(), run(t, s, uniqueConfig()))
		if err != nil || c.Image == foreign || c.Config.Image == foreign || c.Config.Image == pause.Ref {
			t.Errorf("got image %s of %v, %v; the foreign one is %s", c.Image, c.Config, err, foreign)
		}
	}
	if loads := slices.DeleteFunc(engine.Calls(), func(call string) bool { return call != "ImageLoad" }); len(loads) != 1 {
		t.Errorf("got %d loads, want one", len(loads))
	}
}

func TestRunPullsAConfiguredPauseImage(t *testing.T) {
	engine := enginetest.NewMemory()
	s := sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, PauseImage: "missing.example/pause:1", Networks: network.Plugins{Default: network.Bridge{}}})
	_, err := s.RunPodSandbox(t.Context(), request(uniqueConfig()))
	if err == nil || !strings.Contains(err.Error(), "manifest unknown") {
		t.Errorf("got %v, want the registry's answer", err)
	}
	s = sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, PauseImage: "good.example/pause:1", Networks: network.Plugins{Default: network.Bridge{}}})
	run(t, s, uniqueConfig())
}

func TestRunLeavesNothingWhenItFails(t *testing.T) {
	broken := errors.New("broken")
	fail := func(context.Context) error { return broken }
	for name, prepare := range map[string]func(*enginetest.Memory, *fakeNetwork){
		"at create":  func(m *enginetest.Memory, _ *fakeNetwork) { m.Fail("ContainerCreate", fail) },
		"at start":   func(m *enginetest.Memory, _ *fakeNetwork) { m.Fail("ContainerStart", fail) },
		"at inspect": func(m *enginetest.Memory, _ *fakeNetwork) { m.Fail("ContainerInspect", fail) },
		"at network": func(_ *enginetest.Memory, n *fakeNetwork) { n.setUp = broken },
	} {
		t.Run(name, func(t *testing.T) {
			s, engine, plugin := inMemory()
			prepare(engine, plugin)
			if _, err := s.RunPodSandbox(t.Context(), request(uniqueConfig())); !errors.Is(err, broken) {
				t.Errorf("got %v, want the failure", err)
			}
			if left := engine.Containers(); len(left) != 0 {
				t.Errorf("left behind: %v", left)
			}
			if name == "at network" && !slices.Contains(plugin.calls, "down box") {
				t.Error("the half-made network was not torn down")
			}
		})
	}
}

func TestRunLeavesNothingWhenTheClientGoes(t *testing.T) {
	for _, method := range []string{"ContainerCreate", "ContainerStart"} {
		s, engine, _ := inMemory()
		ctx, cancel := context.WithCancel(t.Context())
		engine.Fail(method, func(context.Context) error {
			cancel()
			return nil
		})
		if _, err := s.RunPodSandbox(ctx, request(uniqueConfig())); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v, want cancelled", method, err)
		}
		if left := engine.Containers(); len(left) != 0 {
			t.Errorf("%s: left behind: %v", method, left)
		}
	}
}

func TestRunReplacesWhatWasNeverStarted(t *testing.T) {
	s, engine, _ := inMemory()
	config := uniqueConfig()
	id := engine.AddImage("x")
	labels, err := state.EncodeSandbox(state.Sandbox{Metadata: config.GetMetadata()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := engine.ContainerCreate(t.Context(), &container.Config{Image: id, Labels: labels}, &container.HostConfig{}, nil, nil, state.SandboxName(config.GetMetadata())); err != nil {
		t.Fatal(err)
	}
	run(t, s, config)
	if got := engine.Containers(); len(got) != 1 {
		t.Errorf("got %v, want one container", got)
	}
}

func TestRunLeavesAStrangersContainerAlone(t *testing.T) {
	s, engine, _ := inMemory()
	config := uniqueConfig()
	name := state.SandboxName(config.GetMetadata())
	if _, err := engine.ContainerCreate(t.Context(), &container.Config{Image: engine.AddImage("x")}, &container.HostConfig{}, nil, nil, name); err != nil {
		t.Fatal(err)
	}
	status := statusOf(t, s, run(t, s, config))
	compare(t, config.GetMetadata(), status.GetMetadata())
	if got := engine.Containers(); len(got) != 2 || got[0] != name || !strings.HasPrefix(got[1], name+"_") {
		t.Errorf("got %v, want the stranger and one with a suffix", got)
	}
}

func TestRunFallsBackFromANegativeOOMScore(t *testing.T) {
	s, engine, _ := inMemory()
	refused := false
	engine.Fail("ContainerStart", func(context.Context) error {
		if refused {
			return nil
		}
		refused = true
		return errors.New("OCI runtime create failed: can't get final child's PID from pipe: EOF: unknown")
	})
	for range 2 {
		id := run(t, s, uniqueConfig())
		c, err := engine.ContainerInspect(t.Context(), id)
		if err != nil || c.HostConfig.OomScoreAdj != 0 {
			t.Errorf("got score %d, %v, want 0", c.HostConfig.OomScoreAdj, err)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	linux := func(sc *runtimeapi.LinuxSandboxSecurityContext) func(*runtimeapi.RunPodSandboxRequest) {
		return func(r *runtimeapi.RunPodSandboxRequest) {
			r.Config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: sc}
		}
	}
	port := func(p *runtimeapi.PortMapping) func(*runtimeapi.RunPodSandboxRequest) {
		return func(r *runtimeapi.RunPodSandboxRequest) { r.Config.PortMappings = []*runtimeapi.PortMapping{p} }
	}
	dns := func(c *runtimeapi.DNSConfig) func(*runtimeapi.RunPodSandboxRequest) {
		return func(r *runtimeapi.RunPodSandboxRequest) { r.Config.DnsConfig = c }
	}
	for name, change := range map[string]func(*runtimeapi.RunPodSandboxRequest){
		"a server of two lines":         dns(&runtimeapi.DNSConfig{Servers: []string{"1.1.1.1\nnameserver 6.6.6.6"}}),
		"a domain of two lines":         dns(&runtimeapi.DNSConfig{Searches: []string{"a\rb"}}),
		"an option of two lines":        dns(&runtimeapi.DNSConfig{Options: []string{"a\nb"}}),
		"logs beside whoever serves":    func(r *runtimeapi.RunPodSandboxRequest) { r.Config.LogDirectory = "logs/p" },
		"no config":                     func(r *runtimeapi.RunPodSandboxRequest) { r.Config = nil },
		"no metadata":                   func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Metadata = nil },
		"no name":                       func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Metadata.Name = "" },
		"a host name with a line in it": func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Hostname = "h\n1.2.3.4 x" },
		"a host name with a space":      func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Hostname = "h x" },
		"a huge name":                   func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Metadata.Name = strings.Repeat("n", 254) },
		"a huge namespace":              func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Metadata.Namespace = strings.Repeat("n", 1<<20) },
		"a huge uid":                    func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Metadata.Uid = strings.Repeat("n", 254) },
		"a long host name":              func(r *runtimeapi.RunPodSandboxRequest) { r.Config.Hostname = strings.Repeat("h", 64) },
		"an unknown handler":            func(r *runtimeapi.RunPodSandboxRequest) { r.RuntimeHandler = "gvisor" },
		"an unknown protocol":           port(&runtimeapi.PortMapping{Protocol: 9, ContainerPort: 1}),
		"a container port out of range": port(&runtimeapi.PortMapping{ContainerPort: 65536}),
		"a host port out of range":      port(&runtimeapi.PortMapping{ContainerPort: 1, HostPort: -1}),
		"a host address that is none":   port(&runtimeapi.PortMapping{ContainerPort: 1, HostIp: "localhost"}),
		"a group without a user":        linux(&runtimeapi.LinuxSandboxSecurityContext{RunAsGroup: &runtimeapi.Int64Value{Value: 1}}),
		"a user that is none":           linux(&runtimeapi.LinuxSandboxSecurityContext{RunAsUser: &runtimeapi.Int64Value{Value: -1}}),
		"a group that is none":          linux(&runtimeapi.LinuxSandboxSecurityContext{SupplementalGroups: []int64{1 << 40}}),
		"a policy for groups of none":   linux(&runtimeapi.LinuxSandboxSecurityContext{SupplementalGroupsPolicy: 7}),
		"a network per container":       linux(&runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_CONTAINER}}),
		"a target for processes":        linux(&runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET}}),
		"a seccomp file that is not there": linux(&runtimeapi.LinuxSandboxSecurityContext{
			Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/no/such"},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			s, engine, _ := inMemory()
			r := request(uniqueConfig())
			change(r)
			if _, err := s.RunPodSandbox(t.Context(), r); !errdefs.IsInvalidArgument(err) {
				t.Errorf("got %v, want invalid argument", err)
			}
			if slices.Contains(engine.Calls(), "ContainerCreate") {
				t.Error("the engine was asked to create it")
			}
		})
	}
}

// An incomplete sandbox is not listed, because a cancelled request removes it. A complete sandbox with the same name
// is.
func TestUnfinishedSandboxesAreNotListed(t *testing.T) {
	engine := enginetest.NewMemory()
	s := sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: &fakeNetwork{}}})
	config := uniqueConfig()
	listed := func() int { return len(listBy(t, s, nil)) }
	var during []int
	engine.Fail("ContainerInspect", func(context.Context) error { // the sandbox runs, and the network is the next step
		during = append(during, listed())
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	engine.Fail("ContainerStart", func(context.Context) error {
		during = append(during, listed())
		cancel()
		return nil
	})
	if _, err := s.RunPodSandbox(ctx, request(config)); err == nil {
		t.Fatal("a request that was cut off came to its end")
	}
	if listed() != 0 || len(engine.Containers()) != 0 {
		t.Errorf("got %d listed of %v, want nothing left", listed(), engine.Containers())
	}
	engine.Fail("ContainerStart", nil)
	run(t, s, config)
	if listed() != 1 {
		t.Errorf("got %d listed after all, want the sandbox", listed())
	}
	for _, n := range during {
		if n != 0 {
			t.Errorf("got %v listed on the way, want none", during)
			break
		}
	}
	if len(during) < 2 {
		t.Errorf("looked only %d times", len(during))
	}
	engine.Fail("ContainerInspect", func(context.Context) error { // of the container that holds the name
		if n := listed(); n != 1 {
			t.Errorf("a second request hides the first one's sandbox: %d listed", n)
		}
		return nil
	})
	if _, err := s.RunPodSandbox(t.Context(), request(config)); !errdefs.IsAlreadyExists(err) {
		t.Errorf("got %v, want already exists", err)
	}
	engine.Fail("ContainerInspect", nil)
}

// checkedNetwork is a plugin whose check always fails.
type checkedNetwork struct {
	fakeNetwork
	asked []string
}

func (c *checkedNetwork) Check(_ context.Context, p network.Pod) error {
	c.asked = append(c.asked, p.Metadata.GetName())
	return errors.New("the address is not on the interface")
}

func TestNetworksOfRunningPodsAreChecked(t *testing.T) {
	engine, plugin, log := enginetest.NewMemory(), &checkedNetwork{}, &strings.Builder{}
	s := sandbox.New(sandbox.Options{
		Engine: engine, Containers: engineContainers{engine}, Log: slog.New(slog.NewTextHandler(log, nil)),
		Networks: network.Plugins{Default: plugin},
	})
	run(t, s, uniqueConfig())
	ended := uniqueConfig()
	ended.Metadata.Name = "ended"
	if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: run(t, s, ended)}); err != nil {
		t.Fatal(err)
	}
	s.CheckNetworks(t.Context())
	if !slices.Equal(plugin.asked, []string{"box"}) {
		t.Errorf("asked about %v, want only the pod that runs", plugin.asked)
	}
	if !strings.Contains(log.String(), "the address is not on the interface") {
		t.Errorf("the log has %q", log.String())
	}
}

// TestBandwidthOnTheBridge checks that all pods cause a single warning.
func TestBandwidthOnTheBridge(t *testing.T) {
	log := &strings.Builder{}
	engine := enginetest.NewMemory()
	s := sandbox.New(sandbox.Options{
		Engine: engine, Containers: engineContainers{engine}, Log: slog.New(slog.NewTextHandler(log, nil)),
		Networks: network.Plugins{Default: network.Bridge{}},
	})
	for name, annotations := range map[string]map[string]string{"none": nil, "egress": {kube.AnnotationEgress: "1M"}, "ingress": {kube.AnnotationIngress: "1M"}} {
		config := uniqueConfig()
		config.Annotations, config.Metadata.Name = annotations, name
		run(t, s, config)
	}
	if got := strings.Count(log.String(), "does not limit bandwidth"); got != 1 {
		t.Errorf("%d warnings: %s", got, log)
	}
}
