// Package logs writes container logs in CRI format to the files that a kubelet reads, rotates and removes.
//
// It reads the engine's log API, which works with every readable log driver. A [Service] follows each running container
// that has a log path, from the start of the container or of the shim to the end of the container. Each record becomes
// a line:
//
//	2026-01-02T15:04:05.000000001Z stdout F text
//
// F is P if the line continues in the stream's next record, because the engine splits long lines, or if the container
// ended without a newline. Records that the file already has are recognized (position.go), so a restart of the shim or
// the engine neither loses nor duplicates lines.
//
// In a shim for one command the container service links the path to the engine's file instead.
package logs

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/logdir"
	"github.com/crishim/crishim/shim/state"
)

type Engine interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerLogs(ctx context.Context, id string, o container.LogsOptions) (io.ReadCloser, error)
}

// Service runs a follower for each running container with a log path. It supports every readable log driver; dockershim
// supported only json-file (IsCRISupportedLogDriver).
type Service struct {
	Options

	ctx    context.Context // cancelled by Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	active   map[string]*follower // by container id
	starting map[string]*start    // by container id

	// adopted is closed when the logs of containers that ended without a shim are complete, or after adoptTime.
	adopted      chan struct{}
	adoptionOver func()
	asked        sync.Once
}

type start struct {
	requests int
	over     chan struct{}
	log      *follower // follower whose log is already open; nil: Started opens the log
}

type Options struct {
	Engine Engine
	Log    *slog.Logger // nil: no logging
	// Write is false in a shim for one command, which follows no containers.
	Write bool
}

func New(o Options) *Service {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Service{
		Options: o, active: map[string]*follower{}, starting: map[string]*start{}, adopted: make(chan struct{}),
	}
	s.adoptionOver = sync.OnceFunc(func() { close(s.adopted) })
	s.ctx, s.cancel = context.WithCancel(context.Background())
	if !o.Write {
		s.adoptionOver()
	}
	return s
}

func (s *Service) Start() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.Write || s.closed {
		return
	}
	s.wg.Go(func() {
		defer s.adoptionOver()
		for pause := retryFirst; s.ctx.Err() == nil; pause = min(2*pause, retryMax) {
			ended, err := s.adopt(s.ctx)
			if err == nil {
				for _, f := range ended {
					<-f.done
				}
				return
			}
			s.Log.Debug("containers whose logs are to be written are not known yet", "error", err)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
		}
	})
}

// adopt starts followers for running containers. It also starts followers for ended containers, because their last output
// may be missing from the log, and returns these followers.
func (s *Service) adopt(ctx context.Context) (ended []*follower, err error) {
	list, err := s.Engine.ContainerList(ctx, container.ListOptions{
		All:     true,
		Filters: filters.NewArgs(filters.Arg("label", state.LabelType+"="+state.TypeContainer)),
	})
	if err != nil {
		return nil, err
	}
	for _, c := range list {
		found, ok := state.DecodeContainer(state.ListedName(c), c.Labels)
		at := logdir.Of(found)
		live := c.State == container.StateRunning || c.State == container.StatePaused || c.State == container.StateRestarting
		if !ok || at.Path == "" || c.State == container.StateCreated || !live && !unfinished(at) {
			continue
		}
		if gone, err := s.removed(ctx, c.ID, at); err != nil {
			return nil, err
		} else if gone {
			continue
		}
		f, err := s.follow(c.ID, at, live)
		if err != nil {
			s.Log.Warn("the container's log is not written", "container", c.ID, "path", at.Path, "error", err)
		}
		if err == nil && !live {
			ended = append(ended, f)
		}
	}
	return ended, nil
}

// removed reports whether a container and its log directory are gone. A follower would create the directory again.
func (s *Service) removed(ctx context.Context, id string, at logdir.Place) (bool, error) {
	if dir, _, err := at.OpenExisting(); err == nil {
		return false, dir.Close()
	}
	_, err := s.Engine.ContainerInspect(ctx, id)
	if errdefs.IsNotFound(err) {
		return true, nil
	}
	return false, err
}

// unfinished reports whether an ended container's log may be incomplete. A link to the engine's file is always
// complete. A missing log counts as complete, because a follower would create it again.
func unfinished(at logdir.Place) bool {
	dir, name, err := at.OpenExisting()
	if err != nil {
		return false
	}
	defer dir.Close()
	info, err := dir.Lstat(name)
	return err == nil && info.Mode().IsRegular()
}

func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.wg.Wait()
}

// follow starts a follower for a log unless there is one. With running false, the container may already have been reported
// as ended. The new follower then never reports its log as unfinished, because unfinished containers count as running.
func (s *Service) follow(id string, at logdir.Place, running bool) (*follower, error) {
	if !filepath.IsAbs(at.Path) {
		return nil, fmt.Errorf("log path %q is not absolute: %w", at.Path, errdefs.ErrInvalidArgument)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("the shim is closing: %w", errdefs.ErrUnavailable)
	}
	if f := s.active[id]; f != nil {
		return f, nil
	}
	var f *follower
	if st := s.starting[id]; st != nil && st.log != nil {
		f, st.log = st.log, nil
	} else {
		var err error
		if f, err = newFollower(id, at, s.Engine, s.Log); err != nil {
			return nil, err
		}
	}
	f.late.Store(!running)
	ctx, cancel := context.WithCancel(s.ctx)
	f.cancel = cancel
	s.active[id] = f
	s.wg.Go(func() {
		defer cancel()
		f.run(ctx)
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.active[id] == f {
			delete(s.active, id)
		}
	})
	return f, nil
}

// Starting opens the log before the start. Otherwise another shim that finds the container running could open it first.
func (s *Service) Starting(id string, at logdir.Place) (over func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.starting[id]
	if st == nil {
		st = &start{over: make(chan struct{})}
		if s.active[id] == nil {
			st.log = openNew(id, at, s.Engine, s.Log)
		}
		s.starting[id] = st
	}
	st.requests++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if st.requests--; st.requests > 0 {
			return
		}
		if st.log != nil {
			st.log.discard()
		}
		delete(s.starting, id)
		close(st.over)
	}
}

func (s *Service) Started(_ context.Context, id string, at logdir.Place, _ string) error {
	_, err := s.follow(id, at, true)
	return err
}

const adoptTime = 2 * time.Second

// Unfinished reports whether the container's log is incomplete. Such a container counts as running, except if it ended
// without a shim: another shim may have reported it as ended, and it must not become running again. Unfinished therefore
// first waits until the logs of these containers are complete, but at most until adoptTime after the first call.
func (s *Service) Unfinished(ctx context.Context, id string) bool {
	s.asked.Do(func() {
		timer := time.AfterFunc(adoptTime, s.adoptionOver)
		context.AfterFunc(s.ctx, func() { timer.Stop() })
	})
	select {
	case <-s.adopted:
	case <-ctx.Done():
	}
	s.mu.Lock()
	f, st := s.active[id], s.starting[id]
	s.mu.Unlock()
	return st != nil || f != nil && f.unfinished()
}

func (s *Service) Complete(ctx context.Context, id string) {
	s.mu.Lock()
	st := s.starting[id]
	s.mu.Unlock()
	if st != nil {
		select {
		case <-st.over:
		case <-ctx.Done():
			return
		}
	}
	if f := s.follower(id); f != nil {
		f.wait(ctx)
	}
}

// Removed ends the follower when the log is complete or makes no progress. The file stays: the CRI client, which chose
// its path, removes it.
func (s *Service) Removed(ctx context.Context, id string, _ logdir.Place, _ string) error {
	if f := s.follower(id); f != nil && !f.wait(context.WithoutCancel(ctx)) {
		f.cancel()
		<-f.done
	}
	return nil
}

func (s *Service) follower(id string) *follower {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.active[id]
}

// ReopenContainerLog continues a log in a new file after the old one was renamed.
func (s *Service) ReopenContainerLog(ctx context.Context, r *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	if !s.Write {
		return nil, fmt.Errorf("this shim lives for one command and writes no logs, `crishim serve` does: %w", errdefs.ErrNotImplemented)
	}
	c, err := state.FindContainer(ctx, s.Engine, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if !c.Detail.State.Running {
		return nil, fmt.Errorf("container %q is not running, its log is complete: %w", r.GetContainerId(), errdefs.ErrFailedPrecondition)
	}
	id, at := c.Detail.ID, logdir.Of(c.Container)
	if at.Path == "" {
		return nil, fmt.Errorf("container %q has no log path: %w", r.GetContainerId(), errdefs.ErrFailedPrecondition)
	}
	f, err := s.follow(id, at, true) // starts a follower if the old one has given up or another shim started the container
	if err == nil {
		err = f.reopen()
	}
	if err != nil {
		return nil, fmt.Errorf("reopen the log of container %q: %w", r.GetContainerId(), err)
	}
	return &runtimeapi.ReopenContainerLogResponse{}, nil
}
