package sandbox_test

import (
	"cmp"
	"crypto/rand"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/pause"
	"github.com/crishim/crishim/shim/sandbox"
)

func onEngine(t *testing.T) (*sandbox.Service, *docker.Client) {
	t.Helper()
	engine := enginetest.Require(t)
	return sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: network.Bridge{}}}), engine
}

func uniqueConfig() *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:    &runtimeapi.PodSandboxMetadata{Name: "box", Namespace: "shim-test", Uid: rand.Text(), Attempt: 1},
		Hostname:    "box-host",
		Labels:      map[string]string{"app": "x", "annotation.trap": "y"},
		Annotations: map[string]string{"note": "z"},
		DnsConfig:   &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"example.org"}},
	}
}

func run(t *testing.T, s *sandbox.Service, c *runtimeapi.PodSandboxConfig) string {
	t.Helper()
	resp, err := s.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: c})
	if err != nil {
		t.Fatal(err)
	}
	id := resp.GetPodSandboxId()
	t.Cleanup(func() {
		if _, err := s.RemovePodSandbox(cleanup(t), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Errorf("clean up %s: %v", id, err)
		}
	})
	return id
}

func TestSandboxLifeCycleOnEngine(t *testing.T) {
	s, _ := onEngine(t)
	config := uniqueConfig()
	id := run(t, s, config)

	status := statusOf(t, s, id)
	if status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("got state %s, want ready", status.GetState())
	}
	if _, err := netip.ParseAddr(status.GetNetwork().GetIp()); err != nil {
		t.Errorf("got address %q: %v", status.GetNetwork().GetIp(), err)
	}
	compare(t, config.GetMetadata(), status.GetMetadata())
	compare(t, config.GetLabels(), status.GetLabels())
	compare(t, config.GetAnnotations(), status.GetAnnotations())

	items := listBy(t, s, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{"annotation.trap": "y"}, Id: id[:12]})
	if len(items) != 1 || items[0].GetId() != id || items[0].GetCreatedAt() != status.GetCreatedAt() {
		t.Errorf("got list %v, want the sandbox created at %d", items, status.GetCreatedAt())
	}
	for range 2 {
		if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Fatal(err)
		}
	}
	if got := statusOf(t, s, id); got.GetState() != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || got.GetNetwork().GetIp() != "" {
		t.Errorf("after the stop: got %s with address %q", got.GetState(), got.GetNetwork().GetIp())
	}
	for range 2 {
		if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Fatal(err)
		}
	}
	_, err := s.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if !errdefs.IsNotFound(err) {
		t.Errorf("after the removal: got %v, want not found", err)
	}
	if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Errorf("stop after the removal: %v", err)
	}
}

func TestSandboxOfTheSameIdentityOnEngine(t *testing.T) {
	s, _ := onEngine(t)
	config := uniqueConfig()
	id := run(t, s, config)
	_, err := s.RunPodSandbox(t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if !errdefs.IsAlreadyExists(err) || !strings.Contains(err.Error(), id) {
		t.Errorf("got %v, want already exists with the id %s", err, id)
	}
}

func TestHostNetworkOnEngine(t *testing.T) {
	s, _ := onEngine(t)
	config := uniqueConfig()
	config.Linux = &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: &runtimeapi.NamespaceOption{
			Network: runtimeapi.NamespaceMode_NODE, Ipc: runtimeapi.NamespaceMode_NODE, Pid: runtimeapi.NamespaceMode_NODE,
		},
	}}
	status := statusOf(t, s, run(t, s, config))
	compare(t, config.GetLinux().GetSecurityContext().GetNamespaceOptions(), status.GetLinux().GetNamespaces().GetOptions())
}

// TestForeignPauseImageOnEngine checks that the built-in image is recognized in the engine and that another image with
// its name is not used.
func TestForeignPauseImageOnEngine(t *testing.T) {
	s, engine := onEngine(t)
	foreign, err := engine.ImageInspect(t.Context(), cmp.Or(os.Getenv("CRISHIM_TEST_IMAGE"), "busybox:crishim"))
	if err == nil {
		err = engine.ImageTag(t.Context(), foreign.ID, pause.Ref)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := engine.ContainerInspect(t.Context(), run(t, s, uniqueConfig()))
	if err != nil {
		t.Fatal(err)
	}
	own, err := engine.ImageInspect(t.Context(), pause.Ref)
	if err != nil || c.Image == foreign.ID || c.Image != own.ID {
		t.Errorf("got a sandbox of %s; the built-in image is %s, the other one %s; %v", c.Image, own.ID, foreign.ID, err)
	}
}
