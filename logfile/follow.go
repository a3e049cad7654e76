package logfile

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// defaultPoll is how often Ended is asked where Options do not tell.
const defaultPoll = 500 * time.Millisecond

// followed is the current file of a log.
type followed struct {
	path string
	file *os.File
	lines
	buf []byte
}

// drain hands on all whole lines that are there.
func (f *followed) drain(ctx context.Context, emit func(Entry) error) error {
	return f.lines.read(ctx, f.file, f.buf, emit)
}

// watch tells of changes in the folders of files: rotation puts other files in the place of these.
// It returns nil where inotify is not available: a user has only so many instances (EMFILE) and
// watches (ENOSPC), and not every kernel and file system has it. The file is then looked at as often
// as Ended is asked, which is always done: a network file system does not tell of every change.
func watch(files ...string) *fsnotify.Watcher {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		return nil
	}
	for _, file := range files {
		if err := w.Add(filepath.Dir(file)); err != nil {
			w.Close()
			return nil
		}
	}
	return w
}

// follow hands on what is written from here on.
func (f *followed) follow(ctx context.Context, o Options, watch func(...string) *fsnotify.Watcher, emit func(Entry) error) error {
	var changes chan fsnotify.Event
	var failures chan error
	if w := watch(f.path, f.file.Name()); w != nil { // two folders where the path is a link of a dockershim
		defer w.Close()
		changes, failures = w.Events, w.Errors
	}
	ticker := time.NewTicker(cmp.Or(o.Poll, defaultPoll))
	defer ticker.Stop()
	for ask := true; ; {
		ended := false
		if ask { // before reading: what was written before the end is then read
			var err error
			if ended, err = o.Ended(ctx); err != nil {
				return err
			}
		}
		if err := f.catchUp(ctx, emit); err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			ask = true
		case <-changes: // of a rotated file as well: its writer may still have it open
			ask = false
		case err := <-failures:
			ask = false
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // which only means that some were not told
				changes, failures = nil, nil
			}
		}
	}
}

// catchUp reads what is new, in the file that is open and, where rotation put
// another in its place, in that one.
func (f *followed) catchUp(ctx context.Context, emit func(Entry) error) error {
	next, err := f.successor()
	if err != nil {
		return err
	}
	if err := f.drain(ctx, emit); err != nil || next == nil {
		return err
	}
	f.file.Close()
	f.file, f.lines = next, lines{}
	return f.drain(ctx, emit)
}

// successor returns the file that has taken the path over, nil while none has. A
// file that became shorter is read from its beginning.
func (f *followed) successor() (*os.File, error) {
	mine, err := f.file.Stat()
	if err != nil {
		return nil, err
	}
	there, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // between two steps of rotation, or removed
	}
	if err != nil {
		return nil, err
	}
	if !os.SameFile(mine, there) {
		next, err := Open(f.path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return next, err
	}
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err == nil && there.Size() < at {
		f.lines = lines{}
		_, err = f.file.Seek(0, io.SeekStart)
	}
	return nil, err
}
