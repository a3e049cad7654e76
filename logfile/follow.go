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
	next *os.File // has taken the path over; nil while none has
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
	poll := cmp.Or(o.Poll, defaultPoll)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for ask := true; ; {
		ended := false
		if ask { // before reading: what was written before the end is then read
			var err error
			if ended, err = o.Ended(ctx); err != nil {
				return err
			}
		}
		before := f.next
		if err := f.catchUp(ctx, ask, ended, emit); err != nil || ended {
			return err
		}
		if f.next != nil && f.next != before {
			ticker.Reset(poll) // all of it is left for the old file
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

// catchUp reads what is new. A file that has taken the path over waits, as the runtime may still write into
// the old one: containerd makes the new file before it changes over. It is read at the next tick, when the
// container has ended, or when yet another file has its place.
func (f *followed) catchUp(ctx context.Context, tick, ended bool, emit func(Entry) error) error {
	for over := tick; ; over = ended {
		newest, err := f.successor()
		if err != nil {
			return err
		}
		if err := f.drain(ctx, emit); err != nil {
			if newest != nil {
				newest.Close()
			}
			return err
		}
		switch {
		case newest == nil && (f.next == nil || !over):
			return nil
		case f.next != nil:
			f.file.Close()
			f.file, f.lines, f.next = f.next, lines{}, newest
		case ended:
			f.next = newest
		default:
			f.next = newest
			return nil
		}
	}
}

// successor returns the file that has taken the path over from the newest one that is open, nil while none
// has. A file that became shorter is read from its beginning.
func (f *followed) successor() (*os.File, error) {
	mine, err := cmp.Or(f.next, f.file).Stat()
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
	if f.next != nil {
		return nil, nil // nothing of it is read yet
	}
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err == nil && there.Size() < at {
		f.lines = lines{}
		_, err = f.file.Seek(0, io.SeekStart)
	}
	return nil, err
}
