package client_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
)

func needs(t *testing.T, ok bool, what string) {
	t.Helper()
	if !ok {
		test.Missing(t, "no %s", what)
	}
}

// debianContainerd starts Debian's containerd with the package's configuration in a private directory and returns its
// socket. The directory is on a tmpfs, because overlayfs, the default snapshotter, needs a suitable file system.
func debianContainerd(t *testing.T, change ...string) string {
	t.Helper()
	path, err := exec.LookPath("containerd")
	needs(t, err == nil && os.Geteuid() == 0, "containerd that may be started")
	dir, err := os.MkdirTemp("/run", "crishim-test-")
	if err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile("testdata/debian-containerd.toml")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer(append(change,
		"/etc/cni/net.d", filepath.Join(dir, "no-cni"), // no CNI configuration
		"/var/lib/containerd", filepath.Join(dir, "opt"),
	)...).Replace(string(config))
	file, socket := filepath.Join(dir, "config.toml"), filepath.Join(dir, "c.sock")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(path, "--config", file, "--root", filepath.Join(dir, "root"), "--state", filepath.Join(dir, "state"), "--address", socket)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return socket
}

// settled waits until containerd's socket is no longer missing or refused and its plugins are loaded.
func settled(t *testing.T, o client.Options, want string) []client.Candidate {
	t.Helper()
	var got []client.Candidate
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		got, _ = client.Discover(t.Context(), o)
		if got[0].State == want {
			return got
		}
	}
	t.Fatalf("containerd did not become %q: %+v", want, got)
	return nil
}

// besideEngine returns options for a host with that containerd and a real engine.
func besideEngine(t *testing.T, socket string) (client.Options, *fakeShim) {
	t.Helper()
	path, ok := strings.CutPrefix(os.Getenv("DOCKER_HOST"), "unix://")
	if !ok {
		path = "/var/run/docker.sock"
	}
	_, err := os.Stat(path)
	needs(t, err == nil, "Docker engine on this machine")
	shim := &fakeShim{endpoint: stubcri.Start(t, stubcri.Options{}).Endpoint}
	return client.Options{
		Known:   []client.Known{{Name: "containerd", Path: socket, Containerd: true}},
		Engines: engines(path), StartShim: shim.start, ProbeTimeout: longTimeout,
	}, shim
}

func TestDebiansContainerdBesideDocker(t *testing.T) {
	socket := debianContainerd(t)
	o, shim := besideEngine(t, socket)
	got := settled(t, o, client.StateDockersOwn)
	if last := got[len(got)-1]; !last.Chosen || last.Kind != client.KindEngine {
		t.Errorf("got %+v, want the engine to be chosen", got)
	}
	if c := connect(t, o); !c.Embedded || shim.started != 1 {
		t.Errorf("got %s, want the shim", c.RuntimeEndpoint)
	}

	o.RuntimeEndpoint = socket
	c := connect(t, o)
	if c.Embedded || c.Version.GetRuntimeName() != "containerd" || c.API() != "v1" {
		t.Errorf("with -r: got %s, %v", c.RuntimeEndpoint, c.Version)
	}
	if _, err := c.Image.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Error(err)
	}
	_, err := c.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "nosuch"})
	if status.Code(err) != codes.NotFound || strings.Contains(err.Error(), "rpc error") {
		t.Errorf("got %v", err)
	}

	// A containerd with pods is a runtime of its own; so is one with a pod network.
	o.RuntimeEndpoint, o.Engines = "", engines(socket+".none")
	if c := connect(t, o); c.Embedded {
		t.Error("without an engine containerd was not taken")
	}
}

func TestContainerdWithoutCRIBesideDocker(t *testing.T) {
	// Docker's own packages disable the CRI plugin.
	socket := debianContainerd(t, "version = 2", "version = 2\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]")
	o, shim := besideEngine(t, socket)
	settled(t, o, client.StateNoCRI)
	if c := connect(t, o); !c.Embedded || shim.started != 1 {
		t.Errorf("got %s, want the shim", c.RuntimeEndpoint)
	}
	o.RuntimeEndpoint = socket
	if hint, err := refusal(t, o); !strings.Contains(err.Error(), "serves no CRI") || !strings.Contains(hint, "disabled_plugins") {
		t.Errorf("got %q, hint %q", err, hint)
	}
}
