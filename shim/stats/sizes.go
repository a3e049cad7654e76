package stats

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"

	"github.com/crishim/crishim/internal/bounded"
)

const (
	sizeFresh  = time.Minute            // age at which a new walk starts; it replaces the cached size when it ends
	sizeBudget = 200 * time.Millisecond // how long a call waits for all its disk walks together
	sizeWalks  = 2                      // concurrent walks
	sizeKept   = 4096                   // cached sizes
	findTime   = 2 * time.Minute        // limit for one container, because others wait
)

type layerSize struct {
	bytes  uint64
	inodes uint64 // 0 if only the engine knows the size
	at     time.Time
	root   string // the engine's directory
}

type findSize func(ctx context.Context) (layerSize, error)

// sizes measures writable layers by a disk walk, at most once a minute each. A call waits only briefly; a longer walk
// continues in the background for a later call.
type sizes struct {
	ctx    context.Context
	cancel context.CancelFunc
	walks  sync.WaitGroup
	slots  chan struct{}

	mu    sync.Mutex // guards known and busy
	known map[string]layerSize
	busy  map[string]chan struct{}
}

func newSizes() *sizes {
	ctx, cancel := context.WithCancel(context.Background())
	return &sizes{
		ctx: ctx, cancel: cancel, slots: make(chan struct{}, sizeWalks),
		known: map[string]layerSize{}, busy: map[string]chan struct{}{},
	}
}

func (s *sizes) close() {
	s.mu.Lock() // begin checks ctx under the lock, so it starts no walk after the cancellation
	s.cancel()
	s.mu.Unlock()
	s.walks.Wait()
}

func (s *sizes) of(id string, find findSize, until time.Time) (layerSize, bool) {
	if done := s.begin(id, find); done != nil {
		budget := time.NewTimer(time.Until(until))
		defer budget.Stop()
		select {
		case <-done:
		case <-budget.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.known[id]
	return size, ok
}

func (s *sizes) begin(id string, find findSize) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done, walking := s.busy[id]; walking {
		return done
	}
	if size, ok := s.known[id]; ok && time.Since(size.at) < sizeFresh || s.ctx.Err() != nil {
		return nil
	}
	done := make(chan struct{})
	s.busy[id] = done
	s.walks.Go(func() {
		defer close(done)
		var size layerSize
		var err error
		select {
		case s.slots <- struct{}{}:
			ctx, cancel := context.WithTimeout(s.ctx, findTime)
			size, err = find(ctx)
			cancel()
			<-s.slots
		case <-s.ctx.Done():
			err = s.ctx.Err()
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.busy, id)
		delete(s.known, id)
		if len(s.known) >= sizeKept {
			clear(s.known)
		}
		if err == nil {
			s.known[id] = size
		}
	})
	return done
}

func walk(ctx context.Context, dir string) (layerSize, error) {
	at := time.Now()
	sum, err := bounded.Walk(ctx, dir, 0)
	return layerSize{bytes: sum.Bytes, inodes: sum.Files, at: at}, err
}

func (s *Service) layer(t target, until time.Time) (layerSize, bool) {
	find := s.layerFinder(t)
	if find == nil {
		return layerSize{}, false
	}
	return s.sizes.of(t.c.ID, find, until)
}

// beginLayers starts the walks and returns the deadline to wait for all of them.
func (s *Service) beginLayers(ts ...target) time.Time {
	for _, t := range ts {
		if find := s.layerFinder(t); find != nil && !t.isSandbox() {
			s.sizes.begin(t.c.ID, find)
		}
	}
	return time.Now().Add(sizeBudget)
}

// layerFinder returns nil for a layer of overlay2 that is not on this host. With another driver, such as containerd's
// image store or fuse-overlayfs, the engine is asked for the size.
func (s *Service) layerFinder(t target) findSize {
	if t.c.GraphDriver.Name != "overlay2" {
		return func(ctx context.Context) (layerSize, error) { return s.askSize(ctx, t.c.ID) }
	}
	dir := t.c.GraphDriver.Data["UpperDir"]
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	return func(ctx context.Context) (layerSize, error) {
		size, err := walk(ctx, dir)
		size.root, _, _ = strings.Cut(dir, "/overlay2/")
		return size, err
	}
}

func (s *Service) askSize(ctx context.Context, id string) (layerSize, error) {
	c, _, err := s.engine.ContainerInspectWithRaw(ctx, id, true)
	if err != nil {
		return layerSize{}, fmt.Errorf("size of container %s: %w", id, err)
	}
	if c.ContainerJSONBase == nil || c.SizeRw == nil {
		return layerSize{}, fmt.Errorf("size of container %s: the engine does not report it: %w", id, errdefs.ErrNotFound)
	}
	info, err := s.engine.Info(ctx)
	if err != nil {
		return layerSize{}, fmt.Errorf("ask the docker engine for its root directory: %w", err)
	}
	return layerSize{bytes: uint64(max(*c.SizeRw, 0)), at: time.Now(), root: info.DockerRootDir}, nil
}
