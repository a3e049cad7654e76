package stats

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"
)

const (
	sizeFresh  = time.Minute            // a size is good for that long
	sizeBudget = 200 * time.Millisecond // how long a call waits for a disk walk
	sizeWalks  = 2                      // at the same time
	sizeKept   = 4096                   // containers remembered
	findTime   = 2 * time.Minute        // that one container may keep the others waiting
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

// of returns the size of a container's layer; ok is false while it is not known. It waits
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

// begin starts a walk unless the size is fresh; it returns what is closed when
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
// goes away meanwhile is not counted. A container writes there: it may have any
// number of files, and put a link in the place of a directory.
func walk(ctx context.Context, dir string) (layerSize, error) {
	size := layerSize{at: time.Now()}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return size, err
	}
	defer root.Close()
	linked := map[uint64]bool{}
	count := func(info fs.FileInfo) {
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok || linked[s.Ino] {
			return
		}
		if s.Nlink > 1 && !info.IsDir() {
			linked[s.Ino] = true
		}
		size.bytes += uint64(s.Blocks) * 512
		size.inodes++
	}
	top, err := root.Stat(".")
	if err != nil {
		return size, err
	}
	count(top)
	for dirs := []string{"."}; len(dirs) > 0; {
		at := dirs[len(dirs)-1]
		dirs = dirs[:len(dirs)-1]
		err := entries(ctx, root, at, func(e fs.DirEntry) {
			if info, err := e.Info(); err == nil {
				count(info)
			}
			if name := path.Join(at, e.Name()); e.IsDir() && len(name) < unix.PathMax {
				dirs = append(dirs, name)
			}
		})
		if ctx.Err() != nil || at == "." && err != nil {
			return size, errors.Join(ctx.Err(), err)
		}
	}
	return size, nil
}

// entries hands on what is in a directory, a few at a time.
func entries(ctx context.Context, root *os.Root, name string, each func(fs.DirEntry)) error {
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for ctx.Err() == nil {
		some, err := f.ReadDir(256)
		for _, e := range some {
			each(e)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// layer is the size of what the container has written, where that can be told
// before until.
func (s *Service) layer(t target, until time.Time) (layerSize, bool) {
	find := s.layerFinder(t)
	if find == nil {
		return layerSize{}, false
	}
	return s.sizes.of(t.c.ID, find, until)
}

// beginLayers starts the walks for many containers, which then share one budget
// of waiting, and returns the end of that.
func (s *Service) beginLayers(ts ...target) time.Time {
	for _, t := range ts {
		if find := s.layerFinder(t); find != nil && !t.isSandbox() {
			s.sizes.begin(t.c.ID, find)
		}
	}
	return time.Now().Add(sizeBudget)
}

// layerFinder is nil for a container whose layer is on another host. An engine that does
// not say where the layer is, as with containerd's image store, is asked for the size.
func (s *Service) layerFinder(t target) findSize {
	switch dir := layerDir(t); {
	case dir != "":
		return func(ctx context.Context) (layerSize, error) {
			size, err := walk(ctx, dir)
			size.root, _, _ = strings.Cut(dir, "/overlay2/")
			return size, err
		}
	case t.c.GraphDriver.Name != "" && t.c.GraphDriver.Data["UpperDir"] == "":
		return func(ctx context.Context) (layerSize, error) { return s.askSize(ctx, t.c.ID) }
	}
	return nil
}

func (s *Service) askSize(ctx context.Context, id string) (layerSize, error) {
	c, _, err := s.engine.ContainerInspectWithRaw(ctx, id, true)
	if err != nil {
		return layerSize{}, fmt.Errorf("size of container %s: %w", id, err)
	}
	if c.ContainerJSONBase == nil || c.SizeRw == nil {
		return layerSize{}, fmt.Errorf("size of container %s: the engine does not say it: %w", id, errdefs.ErrNotFound)
	}
	info, err := s.engine.Info(ctx)
	if err != nil {
		return layerSize{}, fmt.Errorf("ask the docker engine for its root directory: %w", err)
	}
	return layerSize{bytes: positive(*c.SizeRw), at: time.Now(), root: info.DockerRootDir}, nil
}

// layerDir is the directory of the container's writable layer, "" where it is
// not on this host.
func layerDir(t target) string {
	dir := t.c.GraphDriver.Data["UpperDir"]
	if t.c.GraphDriver.Name != "overlay2" || dir == "" {
		return ""
	}
	if _, err := os.Stat(dir); err != nil {
		return ""
	}
	return dir
}
