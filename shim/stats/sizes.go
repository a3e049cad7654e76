package stats

import (
	"context"
	"io/fs"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

const (
	sizeFresh  = time.Minute            // a size is good for that long
	sizeBudget = 200 * time.Millisecond // how long a call waits for a disk walk
	sizeWalks  = 2                      // at the same time
	sizeKept   = 4096                   // containers remembered
)

// layerSize is what a container has written.
type layerSize struct {
	bytes  uint64
	inodes uint64 // 0 where only the engine knows the size
	at     time.Time
	root   string // the engine's directory that the layer is below of
}

// findSize finds out a size.
type findSize func(ctx context.Context) (layerSize, error)

// sizes measures writable layers, by walking them or by asking the engine, which
// walks then, each at most once a minute, and remembers the result. A call waits only
// briefly; a longer walk goes on and its result is there for a later call.
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
	s.cancel()
	s.walks.Wait()
}

// of gives the size of a container's layer; ok is false while it is not known. It waits
// for a walk, but not beyond until.
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

// begin starts a walk unless the size is fresh; it gives what is closed when
// the walk that runs has ended.
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
		s.finish(id, find)
	})
	return done
}

func (s *sizes) finish(id string, find findSize) {
	var size layerSize
	var err error
	select {
	case s.slots <- struct{}{}:
		size, err = find(s.ctx)
		<-s.slots
	case <-s.ctx.Done():
		err = s.ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, id)
	if err != nil {
		delete(s.known, id)
		return
	}
	if len(s.known) >= sizeKept {
		clear(s.known)
	}
	s.known[id] = size
}

// walk adds up what a directory holds, a file with several names once. What
// goes away meanwhile is not counted.
func walk(ctx context.Context, dir string) (layerSize, error) {
	size := layerSize{at: time.Now()}
	seen := map[uint64]bool{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			if path == dir {
				return err
			}
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return nil
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok || s.Nlink > 1 && !info.IsDir() && seen[s.Ino] {
			return nil
		}
		seen[s.Ino] = true
		size.bytes += uint64(s.Blocks) * 512
		size.inodes++
		return nil
	})
	return size, err
}
