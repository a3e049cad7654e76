package shim_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim"
)

// installed creates another tool's CNI configuration and returns it with the directory of reserved addresses.
func installed(t *testing.T) (o shim.NetworkOptions, addresses string) {
	t.Helper()
	if _, err := os.Stat("/usr/lib/cni/ptp"); err != nil || os.Geteuid() != 0 {
		test.Missing(t, "CNI needs root and the ptp plugin")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "87-tool.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"tool","plugins":[
		{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"198.18.79.0/24"}]]}}]}`, filepath.Join(dir, "ipam")), 0o600); err != nil {
		t.Fatal(err)
	}
	return shim.NetworkOptions{ConfDir: dir, BinDirs: []string{"/usr/lib/cni"}, CacheDir: filepath.Join(dir, "cache")}, filepath.Join(dir, "ipam", "tool")
}

func address(t *testing.T, c *cri, id string) string {
	t.Helper()
	r, err := c.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetStatus().GetNetwork().GetIp()
}

// networkPlugin returns the plugin for new pods from the verbose status.
func networkPlugin(t *testing.T, c *cri) string {
	t.Helper()
	r, err := c.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		NetworkPlugin string `json:"networkPlugin"`
	}
	if err := json.Unmarshal([]byte(r.GetInfo()["config"]), &config); err != nil {
		t.Fatal(err)
	}
	return config.NetworkPlugin
}

// TestNetworkOfNewPodsOnEngine checks that serve uses an existing CNI configuration, and a single command only on
// request. Each can report, stop and remove the pods of the other.
func TestNetworkOfNewPodsOnEngine(t *testing.T) {
	t.Parallel()
	network, addresses := installed(t)
	asked := network
	asked.Plugin = shim.PluginCNI
	single := newCRIWith(t, shim.Options{Network: network})
	serve := newCRIWith(t, shim.Options{Network: network, Daemon: true})
	asking := newCRIWith(t, shim.Options{Network: asked})

	for name, made := range map[string]struct {
		by, other *cri
		cni       bool
	}{
		"a single command":              {single, serve, false},
		"serve":                         {serve, single, true},
		"a single command that asks it": {asking, single, true},
	} {
		want := map[bool]string{true: "cni", false: "bridge"}[made.cni]
		if got := networkPlugin(t, made.by); got != want {
			t.Errorf("%s: the status has network plugin %q, want %q", name, got, want)
		}
		p := made.by.pod(t, nil)
		ip := address(t, made.by, p.id)
		if got := strings.HasPrefix(ip, "198.18.79."); got != made.cni || ip == "" {
			t.Errorf("%s: got address %q, want one of CNI: %t", name, ip, made.cni)
		}
		if got := address(t, made.other, p.id); got != ip {
			t.Errorf("%s: the other says %q, want %q", name, got, ip)
		}
		if _, err := made.other.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("%s: stop by the other: %v", name, err)
		}
		if left, err := filepath.Glob(filepath.Join(addresses, "198.*")); err != nil || len(left) != 0 {
			t.Errorf("%s: addresses still taken: %v, %v", name, left, err)
		}
		if _, err := made.other.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.id}); err != nil {
			t.Errorf("%s: remove by the other: %v", name, err)
		}
	}
}
