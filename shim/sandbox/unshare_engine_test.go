package sandbox_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/enginetest"
	"github.com/crishim/crishim/shim/host"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/network/cni"
	"github.com/crishim/crishim/shim/sandbox"
	"github.com/crishim/crishim/shim/state"
)

// weakened is an engine that gives the pause process no capability to unshare, as
// a security module may.
type weakened struct {
	*docker.Client
	modes []container.NetworkMode // of what was to be created
}

func (w *weakened) ContainerCreate(ctx context.Context, config *container.Config, hc *container.HostConfig, networking *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error) {
	w.modes = append(w.modes, hc.NetworkMode)
	hc.CapAdd = nil
	return w.Client.ContainerCreate(ctx, config, hc, networking, platform, name)
}

func ptp(t *testing.T) (plugin *cni.Plugin, taken func() []string) {
	t.Helper()
	if _, err := os.Stat("/usr/lib/cni/ptp"); err != nil || os.Geteuid() != 0 {
		t.Skip("CNI needs root and the ptp plugin")
	}
	conf, ipam := t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(conf, "10.conflist"), fmt.Appendf(nil, `{"cniVersion":"1.0.0","name":"crishim-unshared","plugins":[
		{"type":"ptp","ipam":{"type":"host-local","dataDir":%q,"ranges":[[{"subnet":"198.18.79.0/24"}]]}}]}`, ipam), 0o600); err != nil {
		t.Fatal(err)
	}
	plugin = cni.New(cni.Options{ConfDir: conf, CacheDir: t.TempDir(), BinDirs: []string{"/usr/lib/cni"}})
	return plugin, func() []string {
		left, err := filepath.Glob(filepath.Join(ipam, "crishim-unshared", "198.*"))
		if err != nil {
			t.Error(err)
		}
		return left
	}
}

// Where the pause process may not unshare the pod is made in the usual way, and
// it is not tried again.
func TestAPauseThatCannotUnshareOnEngine(t *testing.T) {
	engine := &weakened{Client: enginetest.Require(t)}
	plugin, taken := ptp(t)
	log := &strings.Builder{}
	s := sandbox.New(sandbox.Options{
		Engine: engine, Networks: podnetwork.Plugins{Default: plugin}, Unshare: true, Log: slog.New(slog.NewTextHandler(log, nil)),
		OOM: &host.OOMScore{Known: func() bool { return true }}, // or the sandbox may be made twice for that
	})
	for range 2 {
		id := run(t, s, uniqueConfig())
		if ip := statusOf(t, s, id).GetNetwork().GetIp(); !strings.HasPrefix(ip, "198.18.79.") {
			t.Errorf("got address %q", ip)
		}
		if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
			t.Fatal(err)
		}
	}
	if want := []container.NetworkMode{"host", "none", "none"}; fmt.Sprint(engine.modes) != fmt.Sprint(want) {
		t.Errorf("got sandboxes in %v, want %v", engine.modes, want)
	}
	if said := strings.Count(log.String(), "the fast pod network does not work here"); said != 1 {
		t.Errorf("said %d times in %q", said, log)
	}
	if left := taken(); len(left) != 0 {
		t.Errorf("addresses still taken: %v", left)
	}
}

// told is a CNI plugin that notes which namespaces it is told.
type told struct {
	podnetwork.Bridge
	netns []string
}

func (*told) Name() string { return podnetwork.NameCNI }

func (p *told) TearDown(_ context.Context, pod podnetwork.Pod) error {
	p.netns = append(p.netns, pod.NetNS)
	return nil
}

func (p *told) Addresses(_ context.Context, pod podnetwork.Pod) ([]string, error) {
	p.netns = append(p.netns, pod.NetNS)
	return nil, nil
}

// A plugin would take the node off its network. So whatever the labels say, it is
// never told of the host's namespace.
func TestNoPluginIsToldOfTheHostsNamespaceOnEngine(t *testing.T) {
	engine := enginetest.Require(t)
	for name, capabilities := range map[string][]string{"without capabilities": nil, "with one": {"SYS_ADMIN"}} {
		plugin := &told{}
		s := sandbox.New(sandbox.Options{Engine: engine, Networks: podnetwork.Plugins{Default: plugin}, Unshare: true})
		config := uniqueConfig()
		labels, err := state.EncodeSandbox(state.Sandbox{Metadata: config.GetMetadata(), Network: podnetwork.NameCNI, Unshared: true})
		if err != nil {
			t.Fatal(err)
		}
		made, err := engine.ContainerCreate(t.Context(), &container.Config{Image: "busybox:crishim", Cmd: []string{"sleep", "1000"}, Labels: labels},
			&container.HostConfig{NetworkMode: "host", CapDrop: []string{"ALL"}, CapAdd: capabilities}, nil, nil, state.SandboxName(config.GetMetadata()))
		if err != nil {
			t.Fatal(err)
		}
		if err := engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
			t.Error(err)
		}
		statusOf(t, s, made.ID)
		if _, err := s.RemovePodSandbox(cleanup(t), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: made.ID}); err != nil {
			t.Error(err)
		}
		if fmt.Sprintf("%q", plugin.netns) != `["" ""]` {
			t.Errorf("%s: the plugin was told of %q, want no namespace, twice", name, plugin.netns)
		}
	}
}
