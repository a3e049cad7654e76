package stream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/crishim/crishim/internal/proctree"
)

// sizedEngine runs a process that ends when its terminal is resized. It rejects resizes before the start.
type sizedEngine struct {
	Engine
	conn  net.Conn
	asked chan struct{} // closed by the first resize request

	mu      sync.Mutex
	started bool
	ended   bool
	sizes   []container.ResizeOptions
}

func (e *sizedEngine) ContainerExecCreate(context.Context, string, container.ExecOptions) (container.ExecCreateResponse, error) {
	return container.ExecCreateResponse{ID: "exec"}, nil
}

// ContainerExecAttach starts the process after the first resize request.
func (e *sizedEngine) ContainerExecAttach(context.Context, string, container.ExecAttachOptions) (types.HijackedResponse, error) {
	select {
	case <-e.asked:
	case <-time.After(patience):
		return types.HijackedResponse{}, errors.New("nobody asked for a size before the start")
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.started = true
	ours, theirs := net.Pipe()
	e.conn = theirs
	return types.HijackedResponse{Conn: ours, Reader: bufio.NewReader(ours)}, nil
}

func (e *sizedEngine) ContainerExecResize(_ context.Context, _ string, o container.ResizeOptions) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.sizes) == 0 {
		close(e.asked)
	}
	e.sizes = append(e.sizes, o)
	if !e.started {
		return errors.New("the process does not run")
	}
	e.ended = true
	return e.conn.Close()
}

func (e *sizedEngine) ContainerExecInspect(context.Context, string) (container.ExecInspect, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	const nobody = 1 << 30 // larger than any pid
	return container.ExecInspect{Pid: nobody, Running: !e.ended, ExitCode: 3}, nil
}

// A terminal's size is sent before the start, and again after the start if the engine has rejected it.
func TestTheFirstSizeGoesAheadOfTheStart(t *testing.T) {
	engine := &sizedEngine{asked: make(chan struct{})}
	s := New(Options{}, engine)
	defer s.Close()
	sizes := make(chan remotecommand.TerminalSize, 1)
	sizes <- remotecommand.TerminalSize{Width: 100, Height: 40}
	var out bytes.Buffer
	code, err := s.run(t.Context(), &ExecRequest{ContainerID: "known", Cmd: []string{"sh"}, TTY: true}, ends{stdout: &out, resize: sizes})
	if code != 3 || err != nil {
		t.Errorf("got %d, %v", code, err)
	}
	want := container.ResizeOptions{Width: 100, Height: 40}
	if diff := cmp.Diff([]container.ResizeOptions{want, want}, engine.sizes); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
}

// failingEngine fails to inspect an exec several times, and then reports that it has ended.
type failingEngine struct {
	Engine
	failures int
}

func (e *failingEngine) ContainerExecInspect(context.Context, string) (container.ExecInspect, error) {
	if e.failures--; e.failures >= 0 {
		return container.ExecInspect{}, errdefs.ErrUnavailable
	}
	return container.ExecInspect{ExitCode: 3}, nil
}

// A single failed call does not make a process unreachable.
func TestFindAsksAgain(t *testing.T) {
	t.Parallel()
	for failures, want := range map[int]error{0: proctree.ErrGone, 2: proctree.ErrGone, 1000: errdefs.ErrUnavailable} {
		synctest.Test(t, func(t *testing.T) {
			if _, err := find(t.Context(), &failingEngine{failures: failures}, "exec", "container", startTime, nil, func() {}); !errors.Is(err, want) {
				t.Errorf("after %d failures: got %v, want %v", failures, err, want)
			}
		})
	}
}

type hangingEngine struct{}

func (hangingEngine) ContainerExecInspect(ctx context.Context, _ string) (container.ExecInspect, error) {
	<-ctx.Done()
	return container.ExecInspect{}, ctx.Err()
}

// TestFindEndsWithAnEngineThatHangs checks that find gives up, because output is held back until it returns.
func TestFindEndsWithAnEngineThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if _, err := find(t.Context(), hangingEngine{}, "exec", "container", startTime, nil, func() {}); err == nil || time.Since(began) > time.Minute {
			t.Errorf("got %v after %s", err, time.Since(began))
		}
	})
}
