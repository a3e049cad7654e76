package logs

import (
	"bufio"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/internal/logdir"
)

const (
	retryFirst = 100 * time.Millisecond
	retryMax   = 10 * time.Second
	// endPause is the first pause after the end of the log stream. It is short, because the engine usually reports the
	// end of the container a moment later.
	endPause = 5 * time.Millisecond
	// progressTime limits the wait for the log of an ended container, counted from the last written line.
	progressTime = 5 * time.Second
	// takeOverPause is the interval of attempts to take over a log that another shim writes.
	takeOverPause = 2 * time.Second

	bufferSize = 8 << 10 // each container has two buffers as long as it runs
)

type follower struct {
	id     string
	at     logdir.Place
	engine Engine
	log    *slog.Logger
	cancel context.CancelFunc
	done   chan struct{}
	now    func() time.Time

	late   atomic.Bool   // the container may have been reported as ended
	asked  chan struct{} // closed when a caller first needs the complete log, see remaining
	began  time.Time     // wanted and moved are durations since began
	wanted atomic.Int64  // time at which a caller first needed the complete log; 0: none yet
	moved  atomic.Int64  // time of the last write

	mu   sync.Mutex // guards the fields below, also during a write
	file *os.File   // nil while another shim writes the log
	out  *bufio.Writer
	pos  *position
}

func newFollower(id string, at logdir.Place, engine Engine, log *slog.Logger) (*follower, error) {
	f := &follower{id: id, at: at, engine: engine, log: log.With("container", id, "path", at.Path), done: make(chan struct{}), asked: make(chan struct{}), now: time.Now, began: time.Now()}
	if err := f.open(); err != nil && !errors.Is(err, errTaken) {
		return nil, err
	}
	return f, nil
}

// openNew creates a log and returns a follower for it. It returns nil if the file cannot be created or exists, for
// example because another shim has linked the path to the engine's file.
func openNew(id string, at logdir.Place, engine Engine, log *slog.Logger) *follower {
	if dir, name, err := at.OpenExisting(); err == nil {
		_, err = dir.Lstat(name)
		_ = dir.Close()
		if !errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	if !filepath.IsAbs(at.Path) {
		return nil
	}
	f, err := newFollower(id, at, engine, log)
	if err != nil || !f.opened() {
		return nil // Started reports the error
	}
	return f
}

func (f *follower) discard() {
	dir, name, err := f.at.OpenExisting()
	if err == nil {
		err = errors.Join(dir.Remove(name), dir.Close())
	}
	if err = errors.Join(err, f.file.Close()); err != nil {
		f.log.Warn("the log of a container that was not started", "error", err)
	}
}

func (f *follower) open() error {
	file, pos, err := openFile(f.at, false)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.file, f.pos, f.out = file, pos, bufio.NewWriterSize(disk{f, file}, bufferSize)
	return nil
}

func (f *follower) opened() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.file != nil
}

// takeOver opens the log when the other shim has ended. A caller that waits for the end of the log also waits
// for takeOver, which then tries more often: the other shim may have started just before and may hold the log only
// briefly.
func (f *follower) takeOver(ctx context.Context) error {
	f.log.Debug("another shim writes the container's log")
	pause, asked := takeOverPause, f.asked
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-asked:
			pause, asked = retryFirst, nil
			continue
		case <-time.After(pause):
			pause = min(2*pause, takeOverPause)
		}
		// The log of a removed container must not be created again.
		_, err := f.engine.ContainerInspect(ctx, f.id)
		if errdefs.IsNotFound(err) {
			return err
		}
		if err == nil {
			err = f.open()
			if !errors.Is(err, errTaken) {
				return err
			}
		}
	}
}

type disk struct {
	f    *follower
	file *os.File
}

func (d disk) Write(p []byte) (int, error) {
	n, err := d.file.Write(p)
	if n > 0 {
		d.f.moved.Store(int64(time.Since(d.f.began)))
	}
	return n, err
}

func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	defer f.close()
	if !f.opened() {
		if err := f.takeOver(ctx); err != nil {
			if ctx.Err() == nil && !errdefs.IsNotFound(err) {
				f.log.Warn("the container's log is not written", "error", err)
			}
			return
		}
	}
	pause, ending := retryFirst, false
	for ctx.Err() == nil {
		before := f.last()
		err := f.follow(ctx)
		if f.last().After(before) {
			pause, ending = retryFirst, false
		}
		switch {
		case err == nil:
			return
		case errdefs.IsNotFound(err):
			return // the container and its log were removed
		case errdefs.IsNotImplemented(err):
			f.log.Warn("the engine's log driver cannot be read, the container has no log", "error", err)
			return
		case errors.Is(err, errStreamEnded) && !ending:
			pause, ending = endPause, true
		}
		if ctx.Err() == nil {
			f.log.Debug("log is tried again", "error", err, "after", pause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
		pause = min(2*pause, retryMax)
	}
}

func (f *follower) follow(ctx context.Context) error {
	c, err := f.engine.ContainerInspect(ctx, f.id)
	if err != nil {
		return err
	}
	running := c.State != nil && (c.State.Running || c.State.Restarting)
	if err := f.copy(ctx, c, running); err != nil {
		return err
	}
	if !running {
		return nil
	}
	// The stream ends when the container or the engine stops. The caller tries again to find out which of them stopped.
	return errStreamEnded
}

var errStreamEnded = errors.New("the engine's log stream has ended")

func (f *follower) copy(ctx context.Context, c container.InspectResponse, follow bool) error {
	r, err := f.engine.ContainerLogs(ctx, f.id, container.LogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: follow, Since: f.rewind(),
	})
	if err != nil {
		return err
	}
	defer r.Close()
	src := newSource(r, c)
	for {
		rec, err := src.next()
		if errors.Is(err, io.EOF) { // io.ErrUnexpectedEOF would mean that the engine broke off
			return f.flush()
		}
		if err != nil {
			return errors.Join(err, f.flush())
		}
		if err := f.write(rec, src.idle()); err != nil {
			return err
		}
	}
}

func (f *follower) rewind() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	ahead := f.pos.ahead(f.now())
	if ahead || f.pos.putBack() {
		// The engine will repeat more lines than the position has, so the position is read from the file.
		err := f.out.Flush()
		if err == nil {
			err = f.openAgain(true)
		}
		if err != nil {
			f.log.Warn("the log's own lines cannot be read, some may be written again", "error", err)
		}
	}
	f.pos.rewind(ahead)
	if ahead {
		return engineTime(time.Time{})
	}
	return engineTime(f.pos.since())
}

func (f *follower) write(rec record, flush bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	line := rec.line()
	if f.pos.fresh(line) {
		if _, err := f.out.Write(line); err != nil {
			return errors.Join(err, f.openAgain(false))
		}
		f.pos.wrote(rec.time, line)
	}
	if flush {
		return f.flushLocked()
	}
	return nil
}

func (f *follower) flush() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.flushLocked()
}

// flushLocked reopens the file after a failed write, because only the file shows which lines were written.
func (f *follower) flushLocked() error {
	if err := f.out.Flush(); err != nil {
		return errors.Join(err, f.openAgain(false))
	}
	return nil
}

func (f *follower) last() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.pos.last
}

func (f *follower) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file == nil {
		return
	}
	if err := errors.Join(f.out.Flush(), f.file.Close()); err != nil {
		f.log.Warn("end of the log", "error", err)
	}
}

func (f *follower) unfinished() bool {
	if f.late.Load() {
		return false
	}
	if f.remaining() > 0 {
		return true
	}
	f.late.Store(true) // from now on the container is reported as ended
	return false
}

// remaining returns how long to wait for progress of the log: 0 if the log is complete or the wait is over. The first
// call starts the wait.
func (f *follower) remaining() time.Duration {
	select {
	case <-f.done:
		return 0
	default:
	}
	now := time.Since(f.began)
	if f.wanted.CompareAndSwap(0, max(1, int64(now))) {
		close(f.asked)
	}
	return max(0, time.Duration(max(f.wanted.Load(), f.moved.Load()))+progressTime-now)
}

func (f *follower) wait(ctx context.Context) bool {
	for {
		select {
		case <-f.done:
			return true
		case <-ctx.Done():
			return false
		case <-time.After(f.remaining()):
			if f.remaining() == 0 {
				return false
			}
		}
	}
}
