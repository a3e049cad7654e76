package sandbox_test

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/network/cni"
	"github.com/crishim/crishim/shim/sandbox"
)

// TestFamiliesOnEngine checks the addresses of pods with IPv4, IPv6 or both, and a host port over each family. The
// plugins work in a network namespace of the test, which takes their rules along.
func TestFamiliesOnEngine(t *testing.T) {
	engine := enginetest.Require(t)
	for _, name := range []string{"/usr/lib/cni/ptp", "/usr/lib/cni/portmap"} {
		if _, err := os.Stat(name); err != nil || os.Geteuid() != 0 {
			test.Missing(t, "CNI needs root and the plugins ptp and portmap")
		}
	}
	runtime.LockOSThread() // never unlocked: the thread ends with its namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		test.Missing(t, "this test makes a network namespace: %v", err)
	}
	for _, line := range []string{"link set lo up", "link add host type bridge", "link set host up", "addr add 198.18.81.1/24 dev host", "addr add fd81::1/64 dev host nodad"} {
		if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	const v4, v6 = `[{"subnet":"198.18.82.0/24"}]`, `[{"subnet":"fd82::/112"}]`
	const route4, route6 = `{"dst":"0.0.0.0/0"}`, `{"dst":"::/0"}`
	for i, tc := range []struct {
		name, ranges, routes string
		hosts                []string
	}{
		{"IPv4", v4, route4, []string{"198.18.81.1"}},
		{"IPv6", v6, route6, []string{"fd81::1"}},
		{"both", v4 + "," + v6, route4 + "," + route6, []string{"198.18.81.1", "fd81::1"}},
	} {
		conf, ipam := t.TempDir(), t.TempDir()
		if err := os.WriteFile(filepath.Join(conf, "10.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"crishim-families","plugins":[
			{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[%s],"routes":[%s]}}, {"type":"portmap","snat":true,"capabilities":{"portMappings":true}}]}`, ipam, tc.ranges, tc.routes), 0o600); err != nil {
			t.Fatal(err)
		}
		plugin := cni.New(cni.Options{ConfDir: conf, CacheDir: t.TempDir(), BinDirs: []string{"/usr/lib/cni"}})
		s := sandbox.New(sandbox.Options{Engine: engine, Containers: engineContainers{engine}, Networks: network.Plugins{Default: plugin}})
		config := uniqueConfig()
		port := int32(30080 + i)
		config.PortMappings = []*runtimeapi.PortMapping{{ContainerPort: 80, HostPort: port}}
		id := run(t, s, config)

		status := statusOf(t, s, id).GetNetwork()
		addresses := []string{status.GetIp()}
		for _, more := range status.GetAdditionalIps() {
			addresses = append(addresses, more.GetIp())
		}
		var families []bool
		for _, a := range addresses {
			families = append(families, net.ParseIP(a).To4() == nil)
		}
		var want []bool
		for _, h := range tc.hosts {
			want = append(want, net.ParseIP(h).To4() == nil)
		}
		if !slices.Equal(families, want) {
			t.Errorf("%s: got addresses %q", tc.name, addresses)
		}
		greet(t, engine, id)
		for _, host := range tc.hosts {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, fmt.Sprint(port)), 10*time.Second)
			if err != nil {
				t.Errorf("%s: the host port: %v", tc.name, err)
				continue
			}
			got, err := io.ReadAll(conn)
			conn.Close()
			if string(got) != "hello" || err != nil {
				t.Errorf("%s: %s: got %q, %v", tc.name, host, got, err)
			}
		}
		if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Fatal(err)
		}
		for _, host := range tc.hosts {
			if conn, err := net.DialTimeout("tcp", net.JoinHostPort(host, fmt.Sprint(port)), time.Second); err == nil {
				conn.Close()
				t.Errorf("%s: the host port of a pod that has ended is open on %s", tc.name, host)
			}
		}
	}
}

// greet listens on port 80 of a pod and greets each client.
func greet(t *testing.T, engine *docker.Client, id string) {
	t.Helper()
	pod, err := engine.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	var l net.Listener
	err = ns.WithNetNSPath(fmt.Sprintf("/proc/%d/ns/net", pod.State.Pid), func(ns.NetNS) (err error) {
		l, err = net.Listen("tcp", ":80")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "hello")
			conn.Close()
		}
	}()
}
