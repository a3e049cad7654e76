package reliability

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/crishim/crishim/internal/test"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// account is an engine that only answers Version and Info.
type account struct {
	host string

	mu          sync.Mutex // guards the fields below
	api, driver string
	server      *http.Server // nil while the engine is away
}

func newAccount(t *testing.T, api, driver string) *account {
	t.Helper()
	a := &account{host: "unix://" + filepath.Join(test.SocketDir(t), "s"), api: api, driver: driver}
	t.Cleanup(a.leave)
	return a
}

// come starts the engine with an API version and a cgroup driver.
func (a *account) come(t *testing.T, api, driver string) {
	t.Helper()
	l, err := net.Listen("unix", strings.TrimPrefix(a.host, "unix://"))
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(a.answer)}
	a.mu.Lock()
	a.api, a.driver, a.server = api, driver, server
	a.mu.Unlock()
	go func() { _ = server.Serve(l) }()
}

func (a *account) leave() {
	a.mu.Lock()
	server := a.server
	a.server = nil
	a.mu.Unlock()
	if server != nil {
		_ = server.Close()
	}
}

func (a *account) answer(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	api, driver := a.api, a.driver
	a.mu.Unlock()
	w.Header().Set("Api-Version", api)
	var answer any
	_, call, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/") // without the version
	switch {
	case r.URL.Path == "/_ping":
		return
	case call == "version":
		answer = map[string]any{"Version": "18.09.1", "ApiVersion": api}
	case call == "info":
		answer = map[string]any{"ServerVersion": "18.09.1", "CgroupDriver": driver, "SystemTime": "2026-01-02T15:04:05Z"}
	case call == "events":
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		return
	default: // lists
		answer = []any{}
	}
	_ = json.NewEncoder(w).Encode(answer)
}

const (
	tooOld      = "the docker engine speaks API 1.39, crishim needs 1.40 or newer: upgrade the engine to 19.03 or newer"
	otherDriver = `misconfiguration: kubelet cgroup driver: "systemd" is different from docker cgroup driver: "cgroupfs": ` +
		`set "exec-opts": ["native.cgroupdriver=systemd"] in the engine's daemon.json, or the kubelet's cgroupDriver to cgroupfs`
)

// TestServeRefusesAnEngineThatDoesNotFit checks that serve exits with the reason and leaves no socket.
func TestServeRefusesAnEngineThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ api, driver, want string }{{"1.39", "systemd", tooOld}, {"1.41", "cgroupfs", otherDriver}} {
		a := newAccount(t, "", "")
		a.come(t, c.api, c.driver)
		s := newServe(t, a.host, "--cgroup-driver", "systemd", "--network-plugin", "bridge")
		out, err := exec.Command("crishim", s.args...).CombinedOutput()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 1 {
			t.Errorf("got %v, want status 1", err)
		}
		if want := "crishim: start the shim: " + c.want + "\n"; !strings.HasSuffix(string(out), want) {
			t.Errorf("got %s, want %s", out, want)
		}
		if left, err := os.ReadDir(s.dir); err != nil || len(left) != 0 {
			t.Errorf("serve left %v, %v", left, err)
		}
	}
}

// TestEngineThatDoesNotFitComesLater checks that Status has the same reasons while such an engine is present.
func TestEngineThatDoesNotFitComesLater(t *testing.T) {
	t.Parallel()
	a := newAccount(t, "", "")
	s := startServe(t, a.host, "--cgroup-driver", "systemd", "--network-plugin", "bridge")
	says := func(version, want string) {
		t.Helper()
		wait(t, func() error {
			v, err := s.Version(t.Context(), &runtimeapi.VersionRequest{})
			if err != nil || v.GetVersion() != "0.1.0" || v.GetRuntimeName() != "docker" || v.GetRuntimeApiVersion() != "v1" || v.GetRuntimeVersion() != version {
				return fmt.Errorf("version: got %v, %w, want %s", v, err, version)
			}
			r, err := s.Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
			if err != nil {
				return err
			}
			for _, c := range r.GetStatus().GetConditions() {
				if reason := want != ""; c.GetStatus() == reason || c.GetMessage() != want || (c.GetReason() == "DockerDaemonNotReady") != reason {
					return fmt.Errorf("got %v, want %q", c, want)
				}
			}
			if r.GetInfo()["config"] == "" && want == "" {
				return errors.New("a verbose status without details")
			}
			return nil
		})
	}
	away := "Cannot connect to the Docker daemon at " + a.host + ". Is the docker daemon running?"
	says("unknown", away)
	for _, c := range []struct{ api, driver, want string }{
		{"1.39", "systemd", tooOld}, {"1.41", "cgroupfs", otherDriver}, {"1.41", "systemd", ""}, {"1.41", "cgroupfs", otherDriver}, {"1.39", "systemd", tooOld}, {"1.51", "systemd", ""},
	} {
		a.come(t, c.api, c.driver)
		version := "18.09.1"
		if c.want == tooOld {
			version = "unknown" // an engine that is too old is not asked further
		}
		says(version, c.want)
		a.leave()
		says("unknown", away)
	}
	s.stop()
}
