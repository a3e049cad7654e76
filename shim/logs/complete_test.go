package logs

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/logdir"
	"github.com/crishim/crishim/shim/state"
)

// lateEngine is an engine with one container. Its log stream ends with the container, and the remaining records become
// available when rest is closed.
type lateEngine struct {
	Engine
	labels map[string]string
	rest   chan struct{}

	mu    sync.Mutex
	ended bool
	gone  chan struct{} // closed by end
}

func newLateEngine(path string) *lateEngine {
	return &lateEngine{labels: state.EncodeContainer(state.Container{SandboxID: "pod", LogPath: path}, nil), rest: make(chan struct{}), gone: make(chan struct{})}
}

func (e *lateEngine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ended = true
	close(e.gone)
}

func (e *lateEngine) running() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.ended
}

func (e *lateEngine) ContainerInspect(context.Context, string) (container.InspectResponse, error) {
	return container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{ID: "id", Name: "/k8s_main_p_n_u_0", State: &container.State{Running: e.running()}, HostConfig: &container.HostConfig{}},
		Config:            &container.Config{Labels: e.labels},
	}, nil
}

func (e *lateEngine) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	s := container.Summary{ID: "id", Names: []string{"/k8s_main_p_n_u_0"}, Labels: e.labels, State: container.StateExited}
	if e.running() {
		s.State = container.StateRunning
	}
	return []container.Summary{s}, nil
}

func (e *lateEngine) ContainerLogs(ctx context.Context, _ string, o container.LogsOptions) (io.ReadCloser, error) {
	r, w := io.Pipe()
	go func() {
		wait := e.rest
		if o.Follow {
			wait = e.gone
		}
		_, _ = w.Write(sent("first"))
		select {
		case <-wait:
		case <-ctx.Done():
			w.CloseWithError(ctx.Err())
			return
		}
		if !o.Follow {
			_, _ = w.Write(sent("last"))
		}
		w.Close()
	}()
	return r, nil
}

// sent returns a record in the engine's format with a distinct time.
func sent(text string) []byte {
	return []byte(frame(1, time.Unix(900000000, int64(len(text))).UTC().Format(stampLayout)+" "+text+"\n"))
}

func countLines(t *testing.T, path string) int {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return bytes.Count(content, []byte("\n"))
}

// TestAContainerIsUnfinishedUntilItsLogIsComplete checks that a client that sees a container as ended can read its last
// line.
func TestAContainerIsUnfinishedUntilItsLogIsComplete(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	synctest.Test(t, func(t *testing.T) {
		engine := newLateEngine(path)
		s := New(Options{Engine: engine, Write: true})
		defer s.Close()
		s.Start()
		over := s.Starting("id", logdir.Place{Path: path})
		if !s.Unfinished(t.Context(), "id") {
			t.Error("a container that ends while it is started: its log is said to be complete")
		}
		if err := s.Started(t.Context(), "id", logdir.Place{Path: path}, ""); err != nil {
			t.Fatal(err)
		}
		over()
		completesLate(t, s, engine, path)
	})
}

// completesLate ends the container before its last line and expects the log to be complete only after that line.
func completesLate(t *testing.T, s *Service, engine *lateEngine, path string) {
	t.Helper()
	engine.end()
	synctest.Wait()
	if !s.Unfinished(t.Context(), "id") {
		t.Error("a line is missing, and the log is said to be complete")
	}
	go func() {
		time.Sleep(progressTime / 2)
		close(engine.rest)
	}()
	s.Complete(t.Context(), "id")
	if n := countLines(t, path); n != 2 {
		t.Errorf("got %d lines after the wait, want 2", n)
	}
	if s.Unfinished(t.Context(), "id") {
		t.Error("the log is complete, and not said to be")
	}
}

// TestALogThatIsNeverCompleteIsNotWaitedFor checks that the end of a container is eventually reported, and stays
// reported.
func TestALogThatIsNeverCompleteIsNotWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	synctest.Test(t, func(t *testing.T) {
		engine := newLateEngine(path)
		s := New(Options{Engine: engine, Write: true})
		defer s.Close()
		s.Start()
		if err := s.Started(t.Context(), "id", logdir.Place{Path: path}, ""); err != nil {
			t.Fatal(err)
		}
		engine.end()
		synctest.Wait()
		began := time.Now()
		s.Complete(t.Context(), "id")
		if took := time.Since(began); took.Round(time.Second) != progressTime {
			t.Errorf("waited for %s, want %s", took, progressTime)
		}
		if s.Unfinished(t.Context(), "id") {
			t.Error("the end of the container is not told")
		}
		s.follower("id").moved.Store(int64(time.Since(s.follower("id").began))) // the disk has space again
		if s.Unfinished(t.Context(), "id") {
			t.Error("a container that was said to have ended runs again")
		}
	})
}

// TestWhatEndedWithoutAShimIsReadFirst checks that the next shim completes the log of a container that ended in between
// before it reports the end, and that it never reports the container as running.
func TestWhatEndedWithoutAShimIsReadFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, []byte("1998-07-09T16:00:00.000000005Z stdout F first\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		engine := newLateEngine(path)
		engine.end()
		s := New(Options{Engine: engine, Write: true})
		defer s.Close()
		s.Start()
		go func() {
			time.Sleep(adoptTime / 2)
			close(engine.rest)
		}()
		if s.Unfinished(t.Context(), "id") {
			t.Error("it is said to run")
		}
		if n := countLines(t, path); n != 2 {
			t.Errorf("got %d lines when the end is told, want 2", n)
		}
	})
}

// TestALogThatAnotherShimWritesIsWaitedFor covers a shim that has just started and opens the log of a container that
// this shim has started.
func TestALogThatAnotherShimWritesIsWaitedFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	synctest.Test(t, func(t *testing.T) {
		engine := newLateEngine(path)
		other, s := New(Options{Engine: engine, Write: true}), New(Options{Engine: engine, Write: true})
		defer s.Close()
		defer other.Close()
		for _, shim := range []*Service{other, s} {
			if err := shim.Started(t.Context(), "id", logdir.Place{Path: path}, ""); err != nil {
				t.Fatal(err)
			}
		}
		s.Start()
		completesLate(t, s, engine, path)
	})
}

// TestWhoStartsAContainerWritesItsLog checks that no other shim opens the log before the start is complete. A failed
// start leaves no log.
func TestWhoStartsAContainerWritesItsLog(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	synctest.Test(t, func(t *testing.T) {
		engine, at := newLateEngine(path), logdir.Place{Path: path}
		s, other := New(Options{Engine: engine, Write: true}), New(Options{Engine: engine, Write: true})
		defer other.Close()
		defer s.Close()
		s.Starting("id", at)()
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("after a start that has failed: %v", err)
		}
		over := s.Starting("id", at)
		other.Start()
		synctest.Wait()
		if err := s.Started(t.Context(), "id", at, ""); err != nil {
			t.Fatal(err)
		}
		over()
		if err := s.follower("id").reopen(); err != nil {
			t.Errorf("who started it cannot reopen its log: %v", err)
		}
		if err := other.follower("id").reopen(); err != nil {
			t.Errorf("another shim reopens the log: %v", err)
		}
		engine.end()
		close(engine.rest)
		s.Complete(t.Context(), "id")
		if n := countLines(t, path); n != 2 {
			t.Errorf("got %d lines, want 2", n)
		}
	})
}

// TestReopenOfALogThatAnotherShimWrites covers a log that another shim has opened first. Reopen succeeds if the log
// exists at its path, but not if it was only renamed.
func TestReopenOfALogThatAnotherShimWrites(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	at := logdir.Place{Path: filepath.Join(dir, "0.log")}
	if err := os.WriteFile(dir, nil, 0o600); err != nil { // prevents the creation of a directory
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		engine := newLateEngine(at.Path)
		s, other := New(Options{Engine: engine, Write: true}), New(Options{Engine: engine, Write: true})
		defer other.Close()
		defer s.Close()
		over := s.Starting("id", at)
		if err := s.Started(t.Context(), "id", at, ""); err == nil {
			t.Error("the log was opened")
		}
		over()
		if err := os.Remove(dir); err != nil {
			t.Fatal(err)
		}
		other.Start()
		synctest.Wait()
		request := &runtimeapi.ReopenContainerLogRequest{ContainerId: "id"}
		if _, err := s.ReopenContainerLog(t.Context(), request); err != nil {
			t.Errorf("a log that another shim writes at its path: %v", err)
		}
		if err := os.Rename(at.Path, at.Path+".1"); err != nil {
			t.Fatal(err)
		}
		if _, err := s.ReopenContainerLog(t.Context(), request); !errdefs.IsFailedPrecondition(err) {
			t.Errorf("a log that another shim writes and that was renamed: %v", err)
		}
	})
}

// TestACreatedContainerIsNotAdopted checks that a container without output is left to its start.
func TestACreatedContainerIsNotAdopted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "0.log")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := New(Options{Engine: createdEngine{newLateEngine(path)}, Write: true})
		defer s.Close()
		s.Start()
		synctest.Wait()
		if s.follower("id") != nil {
			t.Error("its log is followed")
		}
	})
}

// createdEngine returns the container of a lateEngine in state created.
type createdEngine struct{ *lateEngine }

func (e createdEngine) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	list, err := e.lateEngine.ContainerList(ctx, o)
	list[0].State = container.StateCreated
	return list, err
}
