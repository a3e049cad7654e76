package cni

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/network"
)

// node is a host with real plugins and a test configuration.
type node struct {
	*Plugin
	conf, cache, ipam string
}

// realPlugins returns a plugin with a ptp network in an unused range. It skips the test without plugins or root.
func realPlugins(t *testing.T) node {
	t.Helper()
	if os.Geteuid() != 0 {
		test.Missing(t, "network namespaces need root")
	}
	for _, name := range []string{"ptp", "host-local"} {
		if _, err := os.Stat(filepath.Join("/usr/lib/cni", name)); err != nil {
			test.Missing(t, "%v", err)
		}
	}
	n := node{conf: t.TempDir(), cache: t.TempDir(), ipam: t.TempDir()}
	writeConf(t, n.conf, "10-test.conflist", fmt.Sprintf(`{"cniVersion":"1.0.0","name":"crishim-test","plugins":[{
		"type":"ptp","ipam":{"type":"host-local","dataDir":%q,
		"ranges":[[{"subnet":"198.18.77.0/24"}],[{"subnet":"fd77::/112"}]]}}]}`, n.ipam))
	n.Plugin = New(Options{ConfDir: n.conf, CacheDir: n.cache, BinDirs: []string{"/usr/lib/cni"}})
	return n
}

func writeConf(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (n node) reserved(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(n.ipam, "crishim-test", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var addresses []string
	for _, f := range files {
		if _, err := netip.ParseAddr(strings.ReplaceAll(filepath.Base(f), "_", ":")); err == nil {
			addresses = append(addresses, filepath.Base(f))
		}
	}
	return addresses
}

func newPod(t *testing.T, n node) (network.Pod, ns.NetNS) {
	t.Helper()
	sandbox := exec.Command("sleep", "3600")
	sandbox.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := sandbox.Start(); err != nil {
		test.Missing(t, "no network namespace: %v", err)
	}
	space, err := ns.GetNS(fmt.Sprintf("/proc/%d/ns/net", sandbox.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var id [32]byte
	rand.Read(id[:])
	pod := network.Pod{
		ID: hex.EncodeToString(id[:]), NetNS: space.Path(),
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "ns", Uid: "u"},
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		if err := n.TearDown(ctx, pod); err != nil {
			t.Error(err)
		}
		space.Close()
		sandbox.Process.Kill()
		sandbox.Wait()
	})
	return pod, space
}

func TestAPodIsConnectedAndDisconnected(t *testing.T) {
	n := realPlugins(t)
	pod, space := newPod(t, n)
	if err := n.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := n.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	addresses, err := n.Addresses(t.Context(), pod)
	if err != nil || len(addresses) != 2 || !strings.HasPrefix(addresses[0], "198.18.77.") || !strings.HasPrefix(addresses[1], "fd77::") {
		t.Fatalf("got %v, %v, want one address of each family", addresses, err)
	}
	if got := addressesOf(t, space); !slices.Contains(got, addresses[0]) || !slices.Contains(got, addresses[1]) {
		t.Errorf("got %v inside the namespace, want %v", got, addresses)
	}
	if err := n.Check(t.Context(), pod); err != nil {
		t.Errorf("check: %v", err)
	}
	for range 2 {
		if err := n.TearDown(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	if left := n.reserved(t); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
	if got := addressesOf(t, space); len(got) != 0 {
		t.Errorf("got %v inside the namespace, want none", got)
	}
}

func addressesOf(t *testing.T, space ns.NetNS) []string {
	t.Helper()
	var got []string
	err := space.Do(func(ns.NetNS) error {
		iface, err := net.InterfaceByName(ifName)
		if err != nil {
			return nil //nolint:nilerr // no interface, no addresses
		}
		addrs, err := iface.Addrs()
		for _, a := range addrs {
			if ipnet, ok := a.(*net.IPNet); ok {
				got = append(got, ipnet.IP.String())
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAddressesWithoutTheCache(t *testing.T) {
	n := realPlugins(t)
	pod, _ := newPod(t, n)
	if err := n.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	want, err := n.Addresses(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := New(Options{ConfDir: n.conf, CacheDir: t.TempDir(), BinDirs: []string{"/usr/lib/cni"}})
	got, err := elsewhere.Addresses(t.Context(), pod)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
}

func TestTearDownUsesTheConfigurationOfTheSetUp(t *testing.T) {
	n := realPlugins(t)
	pod, _ := newPod(t, n)
	if err := n.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(n.conf, "10-test.conflist")); err != nil {
		t.Fatal(err)
	}
	pod.NetNS = "" // the sandbox has ended in the meantime
	if err := n.TearDown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if left := n.reserved(t); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

// A process that is killed between a plugin's success and libcni's cache entry must not leak an address.
func TestTearDownAfterAnInterruptedSetUp(t *testing.T) {
	n := realPlugins(t)
	pod, _ := newPod(t, n)
	if err := n.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(n.cache, "results")); err != nil {
		t.Fatal(err)
	}
	if err := n.TearDown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if left := n.reserved(t); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

func TestTearDownOfANamespaceThatIsGone(t *testing.T) {
	n := realPlugins(t)
	pod, _ := newPod(t, n)
	if err := n.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	pod.NetNS = "/proc/1073741824/ns/net"
	if err := n.TearDown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if left := n.reserved(t); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

func TestReclaimFreesOnlyWhatIsGone(t *testing.T) {
	n := realPlugins(t)
	alive, _ := newPod(t, n)
	dead, _ := newPod(t, n)
	for _, pod := range []network.Pod{alive, dead} {
		if err := n.SetUp(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
	}
	gone, err := n.Reclaim(t.Context(), func(id string) bool { return id == alive.ID }, false)
	if err != nil || !slices.Equal(gone, []string{dead.ID}) {
		t.Errorf("got %v, %v, want %s", gone, err, dead.ID)
	}
	if left := n.reserved(t); len(left) != 2 {
		t.Errorf("got %v taken, want the two of the living pod", left)
	}
}

func TestSetUpSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	p := New(Options{ConfDir: t.TempDir(), CacheDir: t.TempDir()})
	if err := p.SetUp(t.Context(), network.Pod{ID: "x", NetNS: "/proc/self/ns/net"}); err == nil || !strings.Contains(err.Error(), "cni config uninitialized") {
		t.Errorf("no configuration: got %v", err)
	}
	if err := p.SetUp(t.Context(), network.Pod{ID: "x"}); err == nil || !strings.Contains(err.Error(), "not on this host") {
		t.Errorf("no namespace: got %v", err)
	}
	if err := p.TearDown(t.Context(), network.Pod{ID: "x"}); err != nil {
		t.Errorf("tear-down without anything: got %v", err)
	}
}

// TestKubenetOnThisHost checks the bridge's hairpin mode and MTU and the pod's address.
func TestKubenetOnThisHost(t *testing.T) {
	realPlugins(t)
	const bridge, store = "crishimtest0", "/var/lib/cni/networks/kubenet" // directory of host-local's reservations
	if _, err := os.Stat(store); err == nil {
		t.Skip("kubenet is in use on this host")
	}
	t.Cleanup(func() {
		_ = exec.Command("ip", "link", "delete", bridge).Run()
		_ = os.RemoveAll(store)
		_ = os.Remove(filepath.Dir(store)) // if empty
	})
	n := node{cache: t.TempDir(), Plugin: New(Options{
		CacheDir: t.TempDir(), BinDirs: []string{"/usr/lib/cni"}, PodCIDR: "198.18.80.0/24",
		Kubenet: &Kubenet{Bridge: bridge, MTU: 1350, Hairpin: hairpinVeth},
	})}
	pod, space := newPod(t, n)
	if err := n.SetUp(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	got, err := n.Addresses(t.Context(), pod)
	if err != nil || len(got) != 1 || !strings.HasPrefix(got[0], "198.18.80.") || !slices.Contains(addressesOf(t, space), got[0]) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := space.Do(func(ns.NetNS) error {
		iface, err := net.InterfaceByName(ifName)
		if err == nil && iface.MTU != 1350 {
			t.Errorf("got packets of %d bytes, want 1350", iface.MTU)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	modes, err := filepath.Glob("/sys/class/net/" + bridge + "/brif/*/hairpin_mode")
	if err != nil || len(modes) != 1 {
		t.Fatalf("got %v, %v, want the pod's port", modes, err)
	}
	if mode, err := os.ReadFile(modes[0]); err != nil || strings.TrimSpace(string(mode)) != "1" {
		t.Errorf("hairpin mode: got %q, %v", mode, err)
	}
	if err := n.TearDown(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if left, err := filepath.Glob(store + "/198*"); err != nil || len(left) != 0 {
		t.Errorf("addresses still taken: %v, %v", left, err)
	}
}
