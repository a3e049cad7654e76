package cni

import (
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/network"
)

func TestTheFirstReadableConfigurationCounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := New(Options{ConfDir: dir, CacheDir: t.TempDir(), BinDirs: []string{t.TempDir()}})
	if err := p.Status(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("no file: got %v", err)
	}
	writeConf(t, dir, "05-broken.conflist", `{`)
	if err := p.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "05-broken") {
		t.Errorf("a broken file: got %v, want its name", err)
	}
	writeConf(t, dir, "20-b.conf", `{"cniVersion":"0.4.0","name":"b","type":"bridge"}`)
	writeConf(t, dir, "30-c.conflist", `{"cniVersion":"1.0.0","name":"c","plugins":[{"type":"ptp"}]}`)
	if list, err := p.load(); err != nil || list.Name != "b" {
		t.Errorf("got %v, %v, want b", list, err)
	}
	writeConf(t, dir, "10-a.json", `{"cniVersion":"0.4.0","name":"a","type":"bridge"}`)
	if list, err := p.load(); err != nil || list.Name != "a" {
		t.Errorf("after a new file: got %v, %v, want a", list, err)
	}
	if err := p.Usable(); err == nil {
		t.Error("a network without its plugins is usable")
	}
}

func TestRangesWaitForThePodCIDR(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeConf(t, dir, "10.conflist", `{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"bridge","capabilities":{"ipRanges":true}}]}`)
	p := New(Options{ConfDir: dir, CacheDir: t.TempDir()})
	if err := p.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "PodCIDR") {
		t.Errorf("got %v, want the pod CIDR asked for", err)
	}
	p.SetPodCIDR("10.1.0.0/24,fd01::/64")
	p.SetPodCIDR("10.2.0.0/24")
	if err := p.Status(t.Context()); err != nil {
		t.Error(err)
	}
	rt, err := p.runtimeConf(network.Pod{ID: "x"})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]map[string]string{{{"subnet": "10.1.0.0/24"}}, {{"subnet": "fd01::/64"}}}
	if diff := cmp.Diff(want, rt.CapabilityArgs["ipRanges"]); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func TestWhatPluginsAreTold(t *testing.T) {
	t.Parallel()
	p := New(Options{ConfDir: t.TempDir(), CacheDir: t.TempDir()})
	rt, err := p.runtimeConf(network.Pod{
		ID: "id", NetNS: "/ns", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web", Namespace: "prod", Uid: "u"},
		Annotations: map[string]string{"kubernetes.io/ingress-bandwidth": "10M"},
		Ports: []*runtimeapi.PortMapping{
			{ContainerPort: 80, HostPort: 8080, HostIp: "127.0.0.1"}, {ContainerPort: 81}, {Protocol: runtimeapi.Protocol_SCTP, ContainerPort: 82, HostPort: 82},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([][2]string{
		{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "prod"}, {"K8S_POD_NAME", "web"}, {"K8S_POD_INFRA_CONTAINER_ID", "id"}, {"K8S_POD_UID", "u"},
	}, rt.Args); diff != "" {
		t.Errorf("arguments: got + instead of -:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]any{
		"portMappings": []map[string]any{
			{"hostPort": int32(8080), "containerPort": int32(80), "protocol": "tcp", "hostIP": "127.0.0.1"},
			{"hostPort": int32(82), "containerPort": int32(82), "protocol": "sctp", "hostIP": ""},
		},
		"bandwidth": map[string]uint64{"ingressRate": 10e6, "ingressBurst": 1<<31 - 1},
	}, rt.CapabilityArgs); diff != "" {
		t.Errorf("capabilities: got + instead of -:\n%s", diff)
	}
}

func TestBandwidthRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "fast", "999", "2P", "-1M"} {
		if _, err := bandwidth(map[string]string{kube.AnnotationEgress: text}); !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, want invalid", text, err)
		}
	}
}

func TestKubenetMakesAConfiguration(t *testing.T) {
	t.Parallel()
	p := New(Options{CacheDir: t.TempDir(), Kubenet: &Kubenet{MTU: 1400, Hairpin: hairpinVeth}})
	if err := p.Status(t.Context()); err == nil || !strings.Contains(err.Error(), "pod CIDR") {
		t.Errorf("got %v, want the pod CIDR asked for", err)
	}
	p.SetPodCIDR("10.3.0.0/24, fd03::/64")
	list, err := p.load()
	if err != nil {
		t.Fatal(err)
	}
	var types []string
	for _, plugin := range list.Plugins {
		types = append(types, plugin.Network.Type)
	}
	if diff := cmp.Diff([]string{"bridge", "portmap", "bandwidth"}, types); diff != "" || !wants(list, capPorts) || !wants(list, capBandwidth) {
		t.Errorf("got + instead of -:\n%s", diff)
	}
	for _, part := range []string{`"bridge":"cbr0"`, `"mtu":1400`, `"hairpinMode":true`, `"promiscMode":false`, `"subnet":"fd03::/64"`, `"dst":"::/0"`} {
		if !strings.Contains(string(list.Bytes), part) {
			t.Errorf("got %s, want %s in it", list.Bytes, part)
		}
	}
}

// The default is a promiscuous bridge, as in a kubelet.
func TestKubenetHairpins(t *testing.T) {
	t.Parallel()
	for mode, want := range map[string]string{
		"":                 `"hairpinMode":false .*"promiscMode":true`,
		hairpinPromiscuous: `"hairpinMode":false .*"promiscMode":true`,
		hairpinVeth:        `"hairpinMode":true .*"promiscMode":false`,
		HairpinNone:        `"hairpinMode":false .*"promiscMode":false`,
	} {
		list, err := (&Kubenet{Hairpin: mode}).list("10.3.0.0/24")
		if err != nil {
			t.Fatal(err)
		}
		if !regexp.MustCompile(strings.ReplaceAll(want, " ", ",")).Match(list.Bytes) {
			t.Errorf("%q: got %s, want %s", mode, list.Bytes, want)
		}
	}
}

// TestKubenetMasquerades checks that there is a single rule for a configured range, even after several pods, and no
// rule of the bridge plugin.
func TestKubenetMasquerades(t *testing.T) {
	realPlugins(t)
	if _, err := exec.LookPath("iptables"); err != nil {
		test.Missing(t, "%v", err)
	}
	runtime.LockOSThread() // never unlocked: the thread ends with its namespace
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		test.Missing(t, "this test makes a network namespace: %v", err)
	}
	for ranges, want := range map[string]string{
		"10.0.0.0/8":          "-A POSTROUTING -s 10.9.0.0/24 ! -d 10.0.0.0/8 -m comment --comment \"crishim: kubenet\" -m addrtype ! --dst-type LOCAL -j MASQUERADE",
		"10.0.0.0/8,fd00::/8": "-A POSTROUTING -s 10.9.0.0/24 ! -d 10.0.0.0/8 -m comment --comment \"crishim: kubenet\" -m addrtype ! --dst-type LOCAL -j MASQUERADE",
		"fd00::/8":            "-A POSTROUTING -s 10.9.0.0/24 ! -d 10.9.0.0/24 -m comment --comment \"crishim: kubenet\" -m addrtype ! --dst-type LOCAL -j MASQUERADE",
		"0.0.0.0/0":           "",
		"":                    "",
	} {
		if out, err := exec.Command("iptables", "-t", "nat", "-F", "POSTROUTING").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		k := &Kubenet{NonMasquerade: ranges}
		for range 2 {
			if err := k.masquerade(t.Context(), "10.9.0.0/24"); err != nil {
				t.Errorf("%q: %v", ranges, err)
			}
		}
		out, err := exec.Command("iptables", "-t", "nat", "-S", "POSTROUTING").CombinedOutput()
		if got := strings.TrimSpace(strings.TrimPrefix(string(out), "-P POSTROUTING ACCEPT")); err != nil || got != want {
			t.Errorf("%q: got %q, %v, want %q", ranges, got, err, want)
		}
		list, err := k.list("10.9.0.0/24")
		if err != nil || strings.Contains(string(list.Bytes), `"ipMasq":true`) != (ranges == "") {
			t.Errorf("%q: got %s, %v", ranges, list.Bytes, err)
		}
	}
}

func TestCheckHairpin(t *testing.T) {
	t.Parallel()
	for mode, ok := range map[string]bool{"": true, "none": true, "hairpin-veth": true, "promiscuous-bridge": true, "veth": false} {
		if got := CheckHairpin(mode) == nil; got != ok {
			t.Errorf("%q: got %v, want %v", mode, got, ok)
		}
	}
}
