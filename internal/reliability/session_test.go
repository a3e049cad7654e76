package reliability

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
)

// TestEngineStopsInASessionOnEngine disconnects the engine during an attach. The client exits with the reason and does
// not invent an exit status.
func TestEngineStopsInASessionOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	p := h.pod(t)
	proxy := startProxy(t, h.endpoint())
	s := startServe(t, proxy.Host)
	for _, step := range []func() error{
		func() error { return p.run(t.Context(), s) },
		func() error { return p.create(t.Context(), s) },
		func() error { return p.start(t.Context(), s) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	for name, endpoint := range map[string]string{
		"embedded": strings.Replace(proxy.Host, "unix://", "docker://", 1),
		"serve":    s.endpoint(),
	} {
		t.Run(name, func(t *testing.T) {
			proxy.Set(nil)
			var out, errs bytes.Buffer
			cmd := exec.Command("crishim", "-r", endpoint, "attach", p.containerID)
			cmd.Stdout, cmd.Stderr = &out, &errs
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- cmd.Wait() }()
			defer func() { _ = cmd.Process.Kill() }()
			waitFor(t, patience, func() error {
				if !slices.ContainsFunc(proxy.Calls(), func(call string) bool { return strings.HasSuffix(call, "/attach") }) {
					return errors.New("the attach has not reached the engine")
				}
				return nil
			})
			proxy.Down(true)
			defer proxy.Down(false)
			select {
			case err := <-ended:
				if err == nil || !strings.HasPrefix(errs.String(), "crishim: ") {
					t.Errorf("got %v and %q, want a failure that is explained", err, errs.String())
				}
			case <-time.After(patience):
				t.Error("the client goes on without the engine")
			}
		})
	}
}

// TestSessionsOutliveTheEngineOnEngine disconnects and reconnects the engine. Sessions that do not need it continue: an
// exec and its process, a forwarded port, the events. Reading a log ends with the reason. None reports a false end.
func TestSessionsOutliveTheEngineOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	k := newKiller(t, h)
	for name, endpoint := range map[string]string{"embedded": embedded(k.proxy.Host), "serve": k.serve.endpoint()} {
		t.Run(name, func(t *testing.T) {
			p := k.running(t)
			start := func(args ...string) *background {
				return startBackground(t, append([]string{"-r", endpoint}, args...)...)
			}
			execed, forward := start("exec", p.containerID, "sleep", "1000"), start("port-forward", p.id, ":8080")
			events, logs := start("events"), start("logs", "-f", p.containerID)
			wait(t, func() error { return p.runs(t.Context(), "sleep 1000") })
			forward.says(t, "Forwarding from")
			logs.says(t, "ready")
			var made []string
			wait(t, func() error { // events before the subscription are lost
				c := p.container()
				c.Metadata.Name = "more"
				r, err := k.serve.CreateContainer(t.Context(), &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: c, SandboxConfig: p.config})
				made = append(made, r.GetContainerId())
				if told := events.out.String(); err == nil && !slices.ContainsFunc(made, func(id string) bool { return id != "" && strings.Contains(told, id) }) {
					err = errors.New("no event has come")
				}
				return err
			})

			k.proxy.Down(true)
			if err := logs.end(t); err == nil || !strings.Contains(logs.out.String(), "crishim: ") {
				t.Errorf("logs: got %v and %q, want a failure that is explained", err, logs.out)
			}
			k.proxy.Down(false)
			for what, b := range map[string]*background{"exec": execed, "port-forward": forward, "events": events} {
				select {
				case err := <-b.ended:
					t.Fatalf("%s ended with %v: %s", what, err, b.out)
				default:
				}
			}
			wait(t, func() error { return p.stop(t.Context(), k.serve) })
			if err := execed.end(t); err == nil {
				t.Error("the exec says that it ended well")
			}
			if err := forward.end(t); err == nil || !strings.Contains(forward.out.String(), "the pod has ended") {
				t.Errorf("port-forward: got %v and %q", err, forward.out)
			}
			wait(t, func() error {
				if !strings.Contains(events.out.String(), "CONTAINER_STOPPED_EVENT") {
					return fmt.Errorf("no end is told after the engine came back: %s", events.out)
				}
				return nil
			})
			k.gone(t, p)
		})
	}
	k.serve.stop()
}

type background struct {
	out   *test.Buffer
	ended chan error
}

func startBackground(t *testing.T, args ...string) *background {
	t.Helper()
	b := &background{&test.Buffer{}, make(chan error, 1)}
	cmd := exec.Command("crishim", args...)
	cmd.Stdout, cmd.Stderr = b.out, b.out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		b.ended <- cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		<-gone
	})
	return b
}

func (b *background) says(t *testing.T, words string) {
	t.Helper()
	wait(t, func() error {
		if !strings.Contains(b.out.String(), words) {
			return fmt.Errorf("got %q, want %q", b.out, words)
		}
		return nil
	})
}

func (b *background) end(t *testing.T) error {
	t.Helper()
	select {
	case err := <-b.ended:
		return err
	case <-time.After(patience):
		t.Fatalf("it goes on: %s", b.out)
		return nil
	}
}
