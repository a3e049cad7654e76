package sandbox_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/network/cni"
	"github.com/crishim/crishim/shim/sandbox"
)

func TestPodThroughCNIOnEngine(t *testing.T) {
	engine := enginetest.Require(t)
	if _, err := os.Stat("/usr/lib/cni/ptp"); err != nil || os.Geteuid() != 0 {
		test.Missing(t, "CNI needs root and the ptp plugin")
	}
	conf, ipam := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(conf, "10.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"crishim-engine","plugins":[
		{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"198.18.78.0/24"}]]}}]}`, ipam), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin := cni.New(cni.Options{ConfDir: conf, CacheDir: t.TempDir(), BinDirs: []string{"/usr/lib/cni"}})
	s := sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: plugin}})

	config := uniqueConfig()
	id := run(t, s, config)
	if ip := statusOf(t, s, id).GetNetwork().GetIp(); !strings.HasPrefix(ip, "198.18.78.") {
		t.Errorf("got address %q", ip)
	}
	// A shim whose default is the bridge still uses CNI for this pod.
	bridged := sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: network.Bridge{}, Others: []network.Plugin{plugin}}})
	if ip := statusOf(t, bridged, id).GetNetwork().GetIp(); !strings.HasPrefix(ip, "198.18.78.") {
		t.Errorf("through another shim: got address %q", ip)
	}
	if _, err := bridged.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(ipam, "crishim-engine", "198.*"))
	if err != nil || len(left) != 0 {
		t.Errorf("addresses still taken: %v, %v", left, err)
	}
}

func TestAFailedPluginLeavesNothingOnEngine(t *testing.T) {
	engine := enginetest.Require(t)
	conf := t.TempDir()
	if err := os.WriteFile(filepath.Join(conf, "10.conf"), []byte(`{"cniVersion":"0.4.0","name":"none","type":"no-such-plugin"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: cni.New(cni.Options{ConfDir: conf, CacheDir: t.TempDir()})}})
	config := uniqueConfig()
	_, err := s.RunPodSandbox(t.Context(), request(config))
	if err == nil || !strings.Contains(err.Error(), "no-such-plugin") {
		t.Errorf("got %v, want the plugin's name", err)
	}
	for _, p := range listBy(t, s, nil) {
		if p.GetMetadata().GetUid() == config.GetMetadata().GetUid() {
			t.Errorf("left behind: %v", p)
		}
	}
}

// TestNamespaceIsPassedByDescriptorOnEngine checks that plugins get a descriptor if the engine's namespace file is not
// visible. It refers to the pod's namespace even if the pid is reused later, and it is not passed if the process is not
// the pod's.
func TestNamespaceIsPassedByDescriptorOnEngine(t *testing.T) {
	engine := enginetest.Require(t)
	s := sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: network.Bridge{}}})
	id := run(t, s, uniqueConfig())
	c, err := engine.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", c.State.Pid))
	if err != nil {
		test.Missing(t, "%v", err)
	}
	path, done := host.NetNS(id, "", c.State.Pid)
	defer done()
	if !strings.HasPrefix(path, fmt.Sprintf("/proc/%d/fd/", os.Getpid())) {
		t.Fatalf("got %q, want a descriptor", path)
	}
	if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if got, err := os.Stat(path); err != nil || !os.SameFile(got, want) {
		t.Errorf("%s is no longer the pod's namespace: %v", path, err)
	}
	if path, done := host.NetNS(id, "", os.Getpid()); path != "" {
		done()
		t.Errorf("of a process that is not the pod's: got %q", path)
	}
}
