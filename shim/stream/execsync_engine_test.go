package stream

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/state"
)

func TestExecSync(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	for _, test := range []struct {
		name, stdout, stderr string
		cmd                  []string
		code                 int32
	}{
		{name: "success", cmd: []string{"echo", "hi"}, stdout: "hi\n"},
		{name: "streams and status", cmd: []string{"sh", "-c", "echo out; echo err >&2; exit 7"}, stdout: "out\n", stderr: "err\n", code: 7},
		{name: "no input", cmd: []string{"cat"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: test.cmd, Timeout: 120})
			if err != nil || string(got.GetStdout()) != test.stdout || string(got.GetStderr()) != test.stderr || got.GetExitCode() != test.code {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	got, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"no-such-command"}})
	if err != nil || got.GetExitCode() != 127 || len(got.GetStdout()) > 0 || !strings.Contains(string(got.GetStderr()), "no-such-command") {
		t.Errorf("missing command: got %v, %v", got, err)
	}
}

func TestExecSyncTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	_, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"sh", "-c", "(sleep 4747 &); sleep 4747"}, Timeout: 1,
	})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	if left := r.processes(t, id, "4747"); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := r.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"sleep", "4848"}})
		done <- err
	}()
	test.Until(t, "the command to start", func() bool { return len(r.processes(t, id, "4848")) > 0 })
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if left := r.processes(t, id, "4848"); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}

func TestExecSyncKeepsTheBeginningOfTooMuchOutput(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	got, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: id, Cmd: []string{"sh", "-c", "dd if=/dev/zero bs=1M count=20 2>/dev/null; echo end >&2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got.GetStdout())+len(got.GetStderr()) != api.MaxSyncOutput || string(got.GetStderr()) != "end\n" {
		t.Errorf("got %d bytes and %q", len(got.GetStdout()), got.GetStderr())
	}
}

func TestRequestsThatAreRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	stopped := r.container(t, state.TypeContainer, func(c *container.Config, _ *container.HostConfig) { c.Cmd = []string{"true"} })
	test.Until(t, "the container to end", func() bool {
		c, err := r.engine.ContainerInspect(t.Context(), stopped)
		return err == nil && !c.State.Running
	})
	cmd := []string{"true"}
	exec := func(q *runtimeapi.ExecRequest) func() error {
		return func() error { _, err := r.Exec(t.Context(), q); return err }
	}
	for _, test := range []struct {
		name string
		call func() error
		is   func(error) bool
	}{
		{"terminal and stderr", exec(&runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Tty: true, Stdout: true, Stderr: true}), errdefs.IsInvalidArgument},
		{"no stream", exec(&runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd}), errdefs.IsInvalidArgument},
		{"no command", exec(&runtimeapi.ExecRequest{ContainerId: id, Stdout: true}), errdefs.IsInvalidArgument},
		{"no container", exec(&runtimeapi.ExecRequest{Cmd: cmd, Stdout: true}), errdefs.IsInvalidArgument},
		{"unknown container", exec(&runtimeapi.ExecRequest{ContainerId: "nosuch", Cmd: cmd, Stdout: true}), errdefs.IsNotFound},
		{"stopped container", exec(&runtimeapi.ExecRequest{ContainerId: stopped, Cmd: cmd, Stdout: true}), errdefs.IsFailedPrecondition},
		{"sync in a stopped container", func() error {
			_, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: stopped, Cmd: cmd})
			return err
		}, errdefs.IsFailedPrecondition},
		{"attach without streams", func() error {
			_, err := r.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: id})
			return err
		}, errdefs.IsInvalidArgument},
		{"attach to a stopped container", func() error {
			_, err := r.Attach(t.Context(), &runtimeapi.AttachRequest{ContainerId: stopped, Stdout: true})
			return err
		}, errdefs.IsFailedPrecondition},
		{"port-forward to a container", func() error {
			_, err := r.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: id})
			return err
		}, errdefs.IsNotFound},
		{"port 0", func() error {
			_, err := r.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: id, Port: []int32{0}})
			return err
		}, errdefs.IsInvalidArgument},
	} {
		if err := test.call(); !test.is(err) {
			t.Errorf("%s: got %v", test.name, err)
		}
	}
}

// startsLate is an engine that starts a process later than the timeout.
type startsLate struct{ Engine }

func (e startsLate) ContainerExecAttach(ctx context.Context, id string, o container.ExecAttachOptions) (types.HijackedResponse, error) {
	time.Sleep(5500 * time.Millisecond)
	return e.Engine.ContainerExecAttach(ctx, id, o)
}

// TestExecSyncOnASlowEngine checks that the timeout counts from the start of the process.
func TestExecSyncOnASlowEngine(t *testing.T) {
	t.Parallel()
	r := newRig(t, Options{})
	id := r.app(t)
	r.Server.engine = startsLate{r.Server.engine}
	if got, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"true"}, Timeout: 5}); err != nil || got.GetExitCode() != 0 {
		t.Errorf("got %v, %v", got, err)
	}
}

// TestExecSyncThatPrintsForever checks the timeout and the memory limit for endless output.
func TestExecSyncThatPrintsForever(t *testing.T) {
	r := newRig(t, Options{})
	id := r.app(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := r.ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: []string{"yes", "4646"}, Timeout: 2})
	runtime.ReadMemStats(&after)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want DeadlineExceeded", err)
	}
	if after.HeapSys > before.HeapSys+8*api.MaxSyncOutput {
		t.Errorf("the heap grew by %d MiB", (after.HeapSys-before.HeapSys)>>20)
	}
	if left := r.processes(t, id, "4646"); len(left) > 0 {
		t.Errorf("left running: %v", left)
	}
}
