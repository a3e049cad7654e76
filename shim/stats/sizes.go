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
	sizeKept   = 4096                   // directories remembered
)

// layerSize is what a container has written.
type layerSize struct {
	bytes, inodes uint64
	at            time.Time
}

// sizes measures directories by walking them, each at most once a minute, and
// remembers the result. A call waits only briefly; a longer walk goes on and
// its result is there for a later call.
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

// of gives the size of a directory; ok is false while it is not known. It waits
// for a walk, but not beyond until.
func (s *sizes) of(dir string, until time.Time) (layerSize, bool) {
	if done := s.begin(dir); done != nil {
		budget := time.NewTimer(time.Until(until))
		defer budget.Stop()
		select {
		case <-done:
		case <-budget.C:
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	size, ok := s.known[dir]
	return size, ok
}

// begin starts a walk unless the size is fresh; it gives what is closed when
// the walk that runs has ended.
func (s *sizes) begin(dir string) <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done, walking := s.busy[dir]; walking {
		return done
	}
	if size, ok := s.known[dir]; ok && time.Since(size.at) < sizeFresh || s.ctx.Err() != nil {
		return nil
	}
	done := make(chan struct{})
	s.busy[dir] = done
	s.walks.Go(func() {
		defer close(done)
		s.finish(dir)
	})
	return done
}

func (s *sizes) finish(dir string) {
	var size layerSize
	var err error
	select {
	case s.slots <- struct{}{}:
		size, err = walk(s.ctx, dir)
		<-s.slots
	case <-s.ctx.Done():
		err = s.ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.busy, dir)
	if err != nil {
		delete(s.known, dir)
		return
	}
	if len(s.known) >= sizeKept {
		clear(s.known)
	}
	s.known[dir] = size
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
