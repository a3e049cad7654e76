package verbs

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/shim"
)

// answersAsEngine answers a ping on a socket as Docker does.
func answersAsEngine(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
	})}
	go func() { _ = s.Serve(l) }()
	t.Cleanup(func() { _ = s.Close() })
}

// withEngine is a test against an engine that can only be found, on which the shim
// that would be started is written down.
func withEngine(t *testing.T) (*commandTest, *shim.Options) {
	t.Helper()
	path := stubcri.SocketPath(t)
	answersAsEngine(t, path)
	started := &shim.Options{}
	return &commandTest{
		t: t, vars: map[string]string{"CONTAINER_RUNTIME_ENDPOINT": "docker://" + path, "CRISHIM_ROOT": t.TempDir()},
		shim: func(_ context.Context, _ client.Engine, o shim.Options) (client.Shim, error) {
			*started = o
			return nil, errors.New("this is far enough")
		},
	}, started
}

// TestNetworkOfASingleCommand: the engine's bridge, unless a flag, the environment or
// the config file asks for another, in this order.
func TestNetworkOfASingleCommand(t *testing.T) {
	t.Parallel()
	c, started := withEngine(t)
	settings := c.file("shim.yaml", "network-plugin: kubenet\npod-cidr: 10.9.0.0/24\ncni-conf-dir: /c\n")
	own := c.file("own.yaml", "network-plugin: cni\n")
	both := c.file("both.yaml", "shim-config: "+settings+"\n")
	for _, tt := range []struct {
		name, args string
		vars       map[string]string
		want       string
	}{
		{"nothing", "ps", nil, "bridge"},
		{"a flag", "ps --network-plugin cni", nil, "cni"},
		{"the environment", "ps", map[string]string{"CRISHIM_NETWORK_PLUGIN": "cni"}, "cni"},
		{"the config file", "--config " + own + " ps", nil, "cni"},
		{"settings of a shim", "--shim-config " + settings + " ps", nil, "kubenet"},
		{"settings in the environment", "ps", map[string]string{"CRISHIM_SHIM_CONFIG": settings}, "kubenet"},
		{"settings in the config file", "--config " + both + " ps", nil, "kubenet"},
		{"a flag and the environment", "ps --network-plugin bridge", map[string]string{"CRISHIM_NETWORK_PLUGIN": "cni"}, "bridge"},
		{"the environment and the config file", "--config " + own + " ps", map[string]string{"CRISHIM_NETWORK_PLUGIN": "bridge"}, "bridge"},
		{"a flag beside settings", "ps --network-plugin cni --shim-config " + settings, nil, "cni"},
	} {
		*started = shim.Options{}
		run := *c
		run.vars = map[string]string{}
		for _, vars := range []map[string]string{c.vars, tt.vars} {
			for k, v := range vars {
				run.vars[k] = v
			}
		}
		if r := run.run(strings.Fields(tt.args)...); r.code != 1 || !strings.Contains(r.err, "far enough") {
			t.Errorf("%s: got %d, %s", tt.name, r.code, r.err)
		}
		if started.Network.Plugin != tt.want || started.Daemon {
			t.Errorf("%s: got %q, want %q", tt.name, started.Network.Plugin, tt.want)
		}
		if r := run.run(append(strings.Fields(tt.args)[:len(strings.Fields(tt.args))-1], "endpoints")...); strings.HasSuffix(tt.args, " ps") && !strings.Contains(r.out, tt.want) {
			t.Errorf("%s: endpoints says\n%s%s, want %s in it", tt.name, r.out, r.err, tt.want)
		}
	}
}

// TestSyncTakesTheShimsSettings: a sync that goes on is kubelet and dockershim in one;
// what ends at once takes what it can use.
func TestSyncTakesTheShimsSettings(t *testing.T) {
	t.Parallel()
	c, started := withEngine(t)
	settings := c.file("shim.yaml", `
listen: /elsewhere.sock
pod-infra-container-image: registry.k8s.io/pause:3.10
metrics-addr: 127.0.0.1:9101
runtime-cgroups: /runtime.slice/docker
runtime-request-timeout: 3m
streaming-bind-addr: 127.0.0.1:10010
`)
	for args, stays := range map[string]bool{"sync": true, "sync --once": false} {
		if r := c.run(append(strings.Fields(args), "--shim-config", settings, t.TempDir())...); r.code != 1 || !strings.Contains(r.err, "far enough") {
			t.Fatalf("%s: got %d, %s", args, r.code, r.err)
		}
		if started.PauseImage != "registry.k8s.io/pause:3.10" || started.Network.Plugin != shim.PluginBridge {
			t.Errorf("%s: got %+v", args, started)
		}
		all := started.Daemon && started.WriteLogs && started.MetricsAddress == "127.0.0.1:9101" && started.RuntimeCgroups == "/runtime.slice/docker" &&
			started.Engine.RequestTimeout == 3*time.Minute && started.StreamAddress == "127.0.0.1:10010" && started.Log != nil
		none := !started.Daemon && !started.WriteLogs && started.MetricsAddress == "" && started.RuntimeCgroups == "" && started.StreamAddress == ""
		if stays && !all || !stays && !none {
			t.Errorf("%s: got %+v", args, started)
		}
	}
}

// Settings of the shim that cannot be meant are refused before anything is dialled.
func TestSettingsOfTheShimThatAreWrong(t *testing.T) {
	t.Parallel()
	c, started := withEngine(t)
	for args, want := range map[string]string{
		"ps --network-plugin calico":                                     `invalid --network-plugin "calico": must be bridge, cni or kubenet`,
		"ps --network-plugin=":                                           `invalid --network-plugin "": must be bridge`,
		"ps --network-plugin kubenet":                                    "kubenet needs the pod CIDR",
		"ps --shim-config /nonexistent":                                  "--shim-config: open /nonexistent",
		"ps --shim-config " + c.file("bad.yaml", "nosuch: 1"):            `field nosuch is unknown`,
		"ps --config " + c.file("config.yaml", "network-plugin: calico"): `invalid network-plugin "calico": must be bridge, cni or kubenet`,
		"--network-plugin cni serve":                                     "put it behind serve",
		"serve --shim-config x":                                          "serve takes its settings from --config-file",
	} {
		if r := c.run(strings.Fields(args)...); r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: got %d, %s, want %q", args, r.code, r.err, want)
		}
	}
	if started.Network.Plugin != "" {
		t.Error("a shim was started")
	}
	other := withStub(t, stubcri.Options{})
	if r := other.run("ps", "--network-plugin", "cni"); r.code != 1 || !strings.Contains(r.err, "--network-plugin is for the embedded dockershim") {
		t.Errorf("another runtime: got %d, %s", r.code, r.err)
	}
	other.vars["CRISHIM_NETWORK_PLUGIN"] = "cni"
	if r := other.run("ps"); r.code != 0 {
		t.Errorf("another runtime, and a setting for all commands: got %d, %s", r.code, r.err)
	}
}
