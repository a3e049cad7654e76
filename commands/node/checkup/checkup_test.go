package checkup_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/node/checkup"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/output"
)

// machine returns a host with these files, enough disk space, and a network on which all addresses answer.
func machine(t *testing.T, files map[string]string) checkup.Host {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return checkup.Host{
		Root: root,
		Dial: func(context.Context, string, string) (net.Conn, error) {
			a, b := net.Pipe()
			_ = b.Close()
			return a, nil
		},
		Measure: func(string) (diagnose.Filesystem, error) { return diagnose.Filesystem{Space: 0.5, Inodes: 0.5}, nil },
	}
}

var working = map[string]string{
	"/etc/cni/net.d/10-net.conflist": `{"name":"n","plugins":[{"type":"bridge","ipam":{"type":"host-local"}},{"type":"portmap"}]}`,
	"/etc/cni/net.d/99-other.conf":   `broken, but not the first`,
	"/usr/lib/cni/bridge":            "", "/usr/lib/cni/host-local": "", "/opt/cni/bin/portmap": "",
	"/var/lib/kubelet/config.yaml": "cgroupDriver: systemd\n",
	"/run/systemd/system/x":        "",
}

// inDir is the status of a runtime that uses the first file in its CNI directory. loaded returns the status of
// containerd, which lists the loaded networks.
var inDir = map[string]string{"config": `{"cni":{"confDir":"/etc/cni/net.d"}}`}

func loaded(networks, status string) map[string]string {
	return map[string]string{
		"config":            `{"cni":{"binDir":"/opt/cni/bin","confDir":"/other"}}`,
		"cniconfig":         `{"PluginConfDir":"/other","PluginDirs":["/usr/lib/cni"],"Networks":[{"IFName":"lo","Config":{"Name":"cni-loopback","Plugins":[{"Network":{"type":"loopback"}}]}}` + networks + `]}`,
		"lastCNILoadStatus": status,
	}
}

func examine(t *testing.T, s *stubcri.Server, host checkup.Host) map[string]output.Finding {
	t.Helper()
	conn, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: s.Endpoint, ConnectTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	out := map[string]output.Finding{}
	for _, f := range checkup.Runtime(t.Context(), conn, host) {
		if _, twice := out[f.Check]; twice {
			t.Errorf("%s is there twice", f.Check)
		}
		out[f.Check] = f
	}
	return out
}

func TestHealthyRuntime(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{Info: inDir})
	s.AddPod("default", "web")
	got := examine(t, s, machine(t, working))
	for _, check := range []string{"runtime", "CRI version", "RuntimeReady", "NetworkReady", "CNI", "cgroup driver", "image filesystem", "streaming"} {
		if got[check].State != output.FindingOK {
			t.Errorf("%s: got %+v", check, got[check])
		}
	}
	if d := got["CNI"].Detail; d != "/etc/cni/net.d/10-net.conflist: bridge, host-local, portmap" {
		t.Errorf("CNI: got %q", d)
	}
}

// with returns the files of the working machine with some changes. The text "-" removes a file.
func with(change map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range working {
		out[k] = v
	}
	for k, v := range change {
		if out[k] = v; v == "-" {
			delete(out, k)
		}
	}
	return out
}

func TestSickRuntimes(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name          string
		o             stubcri.Options
		files         map[string]string
		spoil         func(*stubcri.Server, *checkup.Host)
		check         string
		state, detail string
		hint          string
	}{
		{"old version", stubcri.Options{APIs: []string{"v1alpha2"}}, working, nil, "CRI version", "warn", "v1alpha2", "update"},
		{"no network", stubcri.Options{NoNetwork: true}, working, nil, "NetworkReady", "fail", "no CNI configuration", "/etc/cni/net.d"},
		{"no status", stubcri.Options{}, working, func(s *stubcri.Server, _ *checkup.Host) {
			s.Fail("Status", status.Error(codes.Internal, "broken"))
		}, "status", "fail", "broken", ""},
		{"no CNI configuration", stubcri.Options{NoNetwork: true, Info: inDir}, nil, nil, "CNI", "fail", "no configuration in", "network plugin"},
		{"another tool's CNI configuration", stubcri.Options{}, working, nil, "CNI", "skip", "does not say which", ""},
		{"the engine's bridge", stubcri.Options{Info: map[string]string{"config": `{"networkPlugin":"bridge"}`}}, working, nil, "CNI", "skip", "the engine's bridge", ""},
		{"kubenet", stubcri.Options{Info: map[string]string{"config": `{"networkPlugin":"kubenet"}`}}, working, nil, "CNI", "fail", "kubenet needs bandwidth, not found in", "containernetworking-plugins"},
		{"what containerd has loaded", stubcri.Options{Info: loaded(`,{"IFName":"eth0","Config":{"Name":"mine","Plugins":[{"Network":{"type":"bridge","ipam":{"type":"host-local"}}}]}}`, `"OK"`)}, working, nil,
			"CNI", "ok", "/other/mine: bridge, host-local", ""},
		{"what containerd cannot call", stubcri.Options{Info: loaded(`,{"IFName":"eth0","Config":{"Name":"mine","Plugins":[{"Network":{"type":"portmap"}}]}}`, `"OK"`)}, working, nil,
			"CNI", "fail", "mine needs portmap, not found in /usr/lib/cni", "containernetworking-plugins"},
		{"CNI seen from a pod", stubcri.Options{Info: loaded(`,{"IFName":"eth0","Config":{"Name":"mine","Plugins":[{"Network":{"type":"portmap"}}]}}`, `"OK"`)}, working, func(_ *stubcri.Server, h *checkup.Host) { h.Hidden = true },
			"CNI", "skip", "cannot be seen from here", ""},
		{"what containerd cannot load", stubcri.Options{NoNetwork: true, Info: loaded("", `"cni config load failed: no network config found in /other"`)}, working, nil,
			"CNI", "fail", "cni config load failed", "/other"},
		{"broken CNI configuration", stubcri.Options{Info: inDir}, with(map[string]string{"/etc/cni/net.d/00-x.conf": "{"}), nil, "CNI", "fail", "00-x.conf: no JSON", "first file"},
		{"CNI configuration without plugin", stubcri.Options{Info: inDir}, with(map[string]string{"/etc/cni/net.d/00-x.json": "{}"}), nil, "CNI", "fail", "names no plugin", ""},
		{"missing plugin", stubcri.Options{Info: inDir}, with(map[string]string{"/opt/cni/bin/portmap": "-"}), nil, "CNI", "fail", "needs portmap, not found in", "containernetworking-plugins"},
		{"another driver than the kubelet", stubcri.Options{}, with(map[string]string{"/var/lib/kubelet/config.yaml": "cgroupDriver: cgroupfs"}), nil, "cgroup driver", "fail", "kubelet is configured for cgroupfs", "same"},
		{"driver unknown", stubcri.Options{Unimplemented: []string{"RuntimeConfig"}}, working, nil, "cgroup driver", "skip", "does not say", ""},
		{"disk full", stubcri.Options{}, working, free(0.04, 0.5), "image filesystem", "fail", "4% of its space", "rmi --prune"},
		{"disk nearly full", stubcri.Options{}, working, free(0.14, 0.5), "image filesystem", "warn", "14% of its space", "rmi --prune"},
		{"no inodes", stubcri.Options{}, working, free(0.5, 0.02), "image filesystem", "fail", "2% of its inodes", ""},
		{"no image filesystem", stubcri.Options{Unimplemented: []string{"ImageFsInfo"}}, working, nil, "image filesystem", "fail", "does not implement", ""},
		{"no pod", stubcri.Options{}, working, nil, "streaming", "skip", "no ready pod", ""},
		{"streaming server out of reach", stubcri.Options{}, working, func(s *stubcri.Server, h *checkup.Host) {
			s.AddPod("default", "web")
			h.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no route") }
		}, "streaming", "fail", "cannot be reached: no route", "firewall"},
		{"no port-forward", stubcri.Options{Unimplemented: []string{"PortForward"}}, working, func(s *stubcri.Server, _ *checkup.Host) {
			s.AddPod("default", "web")
		}, "streaming", "fail", "does not implement", ""},
		{"the only pod stops meanwhile", stubcri.Options{}, working, stopsMeanwhile("default"), "streaming", "skip", "no ready pod", ""},
		{"one pod of two stops meanwhile", stubcri.Options{}, working, stopsMeanwhile("default", "other"), "streaming", "ok", "can be reached", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s, host := stubcri.Start(t, tt.o), machine(t, tt.files)
			if tt.spoil != nil {
				tt.spoil(s, &host)
			}
			f := examine(t, s, host)[tt.check]
			if f.State != tt.state || !strings.Contains(f.Detail, tt.detail) || !strings.Contains(f.Hint, tt.hint) {
				t.Errorf("got %+v, want %s, %q, hint %q", f, tt.state, tt.detail, tt.hint)
			}
		})
	}
}

// stopsMeanwhile adds a pod to each namespace. The pod of the first PortForward call stops just before the call.
func stopsMeanwhile(namespaces ...string) func(*stubcri.Server, *checkup.Host) {
	return func(s *stubcri.Server, _ *checkup.Host) {
		for _, namespace := range namespaces {
			s.AddPod(namespace, "web")
		}
		var once sync.Once
		s.Before("PortForward", func(context.Context) {
			once.Do(func() {
				calls := s.Calls()
				s.StopPod(calls[len(calls)-1].Request.(*runtimeapi.PortForwardRequest).GetPodSandboxId())
			})
		})
	}
}

func free(space, inodes float64) func(*stubcri.Server, *checkup.Host) {
	return func(_ *stubcri.Server, h *checkup.Host) {
		h.Measure = func(string) (diagnose.Filesystem, error) {
			return diagnose.Filesystem{Space: space, Inodes: inodes}, nil
		}
	}
}

func TestEndpoints(t *testing.T) {
	t.Parallel()
	got := checkup.Endpoints([]client.Candidate{
		{Endpoint: "unix:///a", State: client.StateAbsent},
		{Endpoint: "unix:///b", Name: "containerd", State: client.StateDenied, Detail: "permission denied"},
		{Endpoint: "unix:///c", State: client.StateReady, Detail: "cri-o 1.30", Chosen: true},
		{Endpoint: "unix:///d", Name: "containerd", State: client.StateNoCRI, Detail: "serves no CRI"},
	})
	want := []string{"warn", "ok", "ok"}
	if len(got) != len(want) {
		t.Fatalf("got %+v", got)
	}
	for i, f := range got {
		if f.State != want[i] {
			t.Errorf("got %+v, want %s", f, want[i])
		}
	}
	if got[0].Hint == "" || !strings.HasSuffix(got[1].Detail, "the one that is used") {
		t.Errorf("got %+v", got)
	}
}
