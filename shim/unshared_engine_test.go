package shim_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/state"
)

// ptpNetwork is a CNI network of a test's own; taken lists its addresses in use.
func ptpNetwork(t *testing.T) (o shim.NetworkOptions, taken func() []string) {
	t.Helper()
	if _, err := os.Stat("/usr/lib/cni/ptp"); err != nil || os.Geteuid() != 0 {
		t.Skip("CNI needs root and the ptp plugin")
	}
	dir := t.TempDir()
	addresses := filepath.Join(dir, "addresses")
	if err := os.WriteFile(filepath.Join(dir, "10.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"unshared","plugins":[
		{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"198.18.77.0/24"}]]}}]}`, addresses), 0o600); err != nil {
		t.Fatal(err)
	}
	return shim.NetworkOptions{Plugin: shim.PluginCNI, ConfDir: dir, BinDirs: []string{"/usr/lib/cni"}, CacheDir: filepath.Join(dir, "cache")},
		func() []string {
			left, err := filepath.Glob(filepath.Join(addresses, "unshared", "198.*"))
			if err != nil {
				t.Error(err)
			}
			return left
		}
}

// kubelets is a config such as a kubelet's, with what an unshared pod must have.
func kubelets(c *runtimeapi.PodSandboxConfig) {
	c.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"192.0.2.1"}, Searches: []string{"example.org"}, Options: []string{"ndots:5"}}
}

func (p *pod) inspect(t *testing.T) container.InspectResponse {
	t.Helper()
	c, err := p.cri.engine.ContainerInspect(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *pod) sandboxStatus(t *testing.T) *runtimeapi.PodSandboxStatus {
	t.Helper()
	r, err := p.cri.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	if err != nil {
		t.Fatal(err)
	}
	return r.GetStatus()
}

func (p *pod) stop(t *testing.T) {
	t.Helper()
	if _, err := p.cri.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.id}); err != nil {
		t.Fatal(err)
	}
}

// netns is the namespace that a process is in.
func netns(t *testing.T, process string) string {
	t.Helper()
	link, err := os.Readlink("/proc/" + process + "/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	return link
}

// fromInside is all that a container sees of its pod's network, names and settings
// included, but for what is the pod's own: its names and its address.
const fromInside = `for f in /etc/hosts /etc/resolv.conf; do echo "$f:"; cat $f; done
ip address show lo | grep -v index; ip link show eth0 | grep -o '<.*>.*mtu [0-9]*'; ls /sys/class/net
for f in $(find /proc/sys/net -type f | grep -v -e _count -e random -e secret | sort); do echo "$f: $(cat $f 2>&1)"; done
ping -c 1 -w 5 127.0.0.1 >/dev/null && echo loopback answers
cat /proc/sys/kernel/domainname; [ "$(hostname)" = "$(cat /etc/hostname)" ] && echo names agree`

// A pod whose pause process makes the network namespace is like any other pod.
func TestUnsharedPodOnEngine(t *testing.T) {
	network, taken := ptpNetwork(t)
	usual := newCRIWith(t, shim.Options{Daemon: true, Network: network})
	network.Fast = true
	fast := newCRIWith(t, shim.Options{Daemon: true, Network: network})

	model, p := usual.pod(t, kubelets), fast.pod(t, kubelets)
	modelMain, main := model.start(t, shell("main", idle)), p.start(t, shell("main", idle))
	side := p.start(t, shell("side", idle))

	c := p.inspect(t)
	if c.HostConfig.NetworkMode != "host" || c.Config.Labels[state.LabelOwnUnshared] != "cni" {
		t.Fatalf("the pod is not an unshared one: %s, %v", c.HostConfig.NetworkMode, c.Config.Labels)
	}
	t.Run("the pause process keeps nothing", func(t *testing.T) { powerless(t, c.State.Pid) })
	t.Run("one namespace", func(t *testing.T) {
		own := netns(t, fmt.Sprint(c.State.Pid))
		if own == netns(t, "self") {
			t.Fatal("the pod is on the host's network")
		}
		for _, id := range []string{main, side} {
			if got := strings.TrimSpace(execOutput(t, fast, id, "readlink /proc/self/ns/net")); got != own {
				t.Errorf("container in %s, want the pod's %s", got, own)
			}
		}
	})
	t.Run("looks like any other", func(t *testing.T) {
		if diff := cmp.Diff(execOutput(t, usual, modelMain, fromInside), execOutput(t, fast, main, fromInside)); diff != "" {
			t.Errorf("an unshared pod (+) sees something else than another (-):\n%s", diff)
		}
		if got := strings.TrimSpace(execOutput(t, fast, side, "hostname")); got != p.config.GetHostname() {
			t.Errorf("got host name %q, want %s", got, p.config.GetHostname())
		}
		want, got := model.sandboxStatus(t), p.sandboxStatus(t)
		if diff := cmp.Diff(want.GetLinux(), got.GetLinux(), protocmp.Transform()); diff != "" {
			t.Errorf("got + instead of -:\n%s", diff)
		}
	})
	t.Run("statistics", func(t *testing.T) {
		r, err := fast.PodSandboxStats(t.Context(), &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
		if name := r.GetStats().GetLinux().GetNetwork().GetDefaultInterface().GetName(); err != nil || name != "eth0" {
			t.Errorf("got interface %q, %v", name, err)
		}
	})
	t.Run("another shim", func(t *testing.T) { adopts(t, newCRIWith(t, shim.Options{Daemon: true, Network: network}), p) })
	t.Run("a shim without the flag", func(t *testing.T) {
		adopts(t, usual, p)
		(&pod{cri: usual, id: p.id}).stop(t)
		if left := taken(); len(left) != 1 {
			t.Errorf("got %v taken, want the other pod's only", left)
		}
	})
	model.stop(t)
	if left := taken(); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

// powerless: the process that was given a capability to make the namespace with
// has none any more, and can get none.
func powerless(t *testing.T, pid int) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "CapAmb:\t0000000000000000", "NoNewPrivs:\t1"} {
		if !strings.Contains(string(status), line+"\n") {
			t.Errorf("want %q in\n%s", line, status)
		}
	}
}

// adopts: a shim that did not make the pod knows it, and puts containers into its
// namespace.
func adopts(t *testing.T, c *cri, p *pod) {
	t.Helper()
	other := &pod{cri: c, id: p.id, config: p.config}
	if diff := cmp.Diff(p.sandboxStatus(t), other.sandboxStatus(t), protocmp.Transform()); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
	if ip := other.sandboxStatus(t).GetNetwork().GetIp(); !strings.HasPrefix(ip, "198.18.77.") {
		t.Errorf("got address %q", ip)
	}
	name := "late-" + filepath.Base(t.Name())
	if got, want := strings.TrimSpace(other.output(t, shell(name, "readlink /proc/self/ns/net"))), netns(t, fmt.Sprint(p.inspect(t).State.Pid)); got != want {
		t.Errorf("a container of another shim is in %s, want %s", got, want)
	}
}

// What an unshared pod could not have goes the usual way, settings of its network
// for one.
func TestPodsThatAreNotUnsharedOnEngine(t *testing.T) {
	network, _ := ptpNetwork(t)
	network.Fast = true
	fast := newCRIWith(t, shim.Options{Daemon: true, Network: network})
	p := fast.pod(t, func(c *runtimeapi.PodSandboxConfig) {
		kubelets(c)
		c.Linux.Sysctls = map[string]string{"net.ipv4.ip_local_port_range": "20000 20100"}
	})
	if got := strings.Fields(p.output(t, shell("main", "cat /proc/sys/net/ipv4/ip_local_port_range"))); strings.Join(got, " ") != "20000 20100" {
		t.Errorf("got ports %q", got)
	}
	if mode := p.inspect(t).HostConfig.NetworkMode; mode != "none" {
		t.Errorf("got mode %s", mode)
	}
	onHost := fast.pod(t, func(c *runtimeapi.PodSandboxConfig) {
		kubelets(c)
		c.Linux.SecurityContext.NamespaceOptions = &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}
	})
	if got := onHost.sandboxStatus(t).GetLinux().GetNamespaces().GetOptions().GetNetwork(); got != runtimeapi.NamespaceMode_NODE {
		t.Errorf("a pod on the host's network is said to be in %s", got)
	}
	if got := strings.TrimSpace(onHost.output(t, shell("main", "readlink /proc/self/ns/net"))); got != netns(t, "self") {
		t.Errorf("a container on the host's network is in %s", got)
	}
}

// A sandbox that has ended is like any other that has: its address can be freed.
func TestAnUnsharedSandboxThatEndedOnEngine(t *testing.T) {
	network, taken := ptpNetwork(t)
	network.Fast = true
	fast := newCRIWith(t, shim.Options{Daemon: true, Network: network})
	p := fast.pod(t, kubelets)
	p.start(t, shell("main", idle))
	if len(taken()) == 0 {
		t.Fatal("the pod has no address")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := fast.engine.ContainerKill(ctx, p.id, "KILL"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the sandbox is not ready", func() bool {
		return p.sandboxStatus(t).GetState() == runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	})
	p.stop(t)
	if left := taken(); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

// A sandbox that somebody restarts is on the host's network until its pause process
// has left it. No container gets there with it.
func TestNothingStartsInASandboxOnTheHostOnEngine(t *testing.T) {
	c := newCRI(t)
	metadata := &runtimeapi.PodSandboxMetadata{Name: "late", Namespace: "test", Uid: rand.Text()}
	labels, err := state.EncodeSandbox(state.Sandbox{Metadata: metadata, Network: "cni", Unshared: true})
	if err != nil {
		t.Fatal(err)
	}
	id := adopted(t, c, state.SandboxName(metadata), &container.Config{Labels: labels, Cmd: []string{"sleep", "1000"}}, &container.HostConfig{NetworkMode: "host", IpcMode: "shareable"})
	p := &pod{cri: c, id: id, config: &runtimeapi.PodSandboxConfig{Metadata: metadata, Linux: &runtimeapi.LinuxPodSandboxConfig{}}}
	made := p.create(t, shell("main", idle))
	t.Cleanup(func() {
		if _, err := c.RemoveContainer(context.WithoutCancel(t.Context()), &runtimeapi.RemoveContainerRequest{ContainerId: made}); err != nil {
			t.Error(err)
		}
	})
	_, err = c.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: made})
	if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), "network namespace") {
		t.Errorf("got %v", err)
	}
	if got := c.status(t, made).GetState(); got != runtimeapi.ContainerState_CONTAINER_CREATED {
		t.Errorf("the container is %s", got)
	}
}
