package logfile

import (
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/lazyregexp"
)

// Open opens a container's log. Only one link is followed, to ID/ID-json.log of the engine, wherever that is: a
// container may have replaced its log if the pod's log directory is mounted into it, and can have such files only
// among its own.
func Open(path string) (*os.File, error) {
	f, err := bounded.Open(path)
	if !errors.Is(err, syscall.ELOOP) {
		return f, err
	}
	target, err := os.Readlink(path)
	if err != nil {
		return nil, err
	}
	id := filepath.Base(filepath.Dir(target))
	if !filepath.IsAbs(target) || !containerID.MatchString(id) || filepath.Base(target) != id+"-json.log" {
		return nil, fmt.Errorf("log %s is a link to %s, which is no log of a container engine", path, strings.ToValidUTF8(target, "?"))
	}
	return bounded.Open(target)
}

var containerID = lazyregexp.New(`^[0-9a-f]{64}$`)

func (f *followed) history(ctx context.Context, o Options, emit func(Entry) error) error {
	older, err := rotated(f.file.Name())
	if err != nil {
		return err
	}
	current, err := f.file.Stat()
	if err != nil {
		return err
	}
	for _, path := range older {
		if info, err := os.Stat(path); err == nil && (info.ModTime().Before(o.Since) || os.SameFile(info, current)) {
			continue // all of it is older, or is read below: it was rotated just now
		}
		if err := readWhole(ctx, path, f.damaged, emit); err != nil {
			return err
		}
	}
	if err := f.drain(ctx, emit); err != nil || o.Follow || len(f.rest) == 0 {
		return err
	}
	if o.Ended != nil {
		if ended, err := o.Ended(ctx); err != nil || !ended {
			return err // its writer has not ended the line yet
		}
	}
	return f.end(emit)
}

// rotated lists the rotated files, oldest first: PATH.1 and up, as Docker counts, and PATH.20060102-150405, as a
// kubelet dates, also with .gz.
func rotated(path string) ([]string, error) {
	dir, base := filepath.Split(path)
	entries, err := os.ReadDir(filepath.Clean(dir))
	if err != nil {
		return nil, err
	}
	var found []string
	for _, entry := range entries {
		suffix, isRotated := strings.CutPrefix(entry.Name(), base+".")
		bare := strings.TrimSuffix(suffix, ".gz")
		_, notNumber := strconv.Atoi(bare)
		isDate := len(bare) == len("20060102-150405") && strings.Trim(bare, "0123456789-") == ""
		if !isRotated || !entry.Type().IsRegular() || notNumber != nil && !isDate {
			continue
		}
		// A kubelet keeps the plain file until the compressed one is whole.
		if whole, zipped := strings.CutSuffix(entry.Name(), ".gz"); zipped && slices.Contains(found, dir+whole) {
			continue
		}
		found = append(found, dir+entry.Name())
	}
	// Numbers downwards and dates upwards, which is older first.
	slices.SortFunc(found, func(a, b string) int {
		x, y := strings.TrimSuffix(a[len(path)+1:], ".gz"), strings.TrimSuffix(b[len(path)+1:], ".gz")
		m, errX := strconv.Atoi(x)
		n, errY := strconv.Atoi(y)
		if errX == nil && errY == nil {
			return cmp.Compare(n, m)
		}
		return cmp.Compare(x, y)
	})
	return found, nil
}

func readWhole(ctx context.Context, path string, damaged *int, emit func(Entry) error) (err error) {
	file, err := bounded.Open(path)
	if errors.Is(err, os.ErrNotExist) && !strings.HasSuffix(path, ".gz") { // compressed meanwhile
		path += ".gz"
		file, err = bounded.Open(path)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed meanwhile
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var from io.Reader = file
	if strings.HasSuffix(path, ".gz") {
		zipped, err := gzip.NewReader(file)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		from = zipped
	}
	l := &lines{damaged: damaged}
	if err := l.read(ctx, from, make([]byte, 64<<10), emit); err != nil {
		return err
	}
	return l.end(emit)
}

type followed struct {
	path string
	file *os.File
	next *os.File // has taken the path over; nil while none has
	lines
	buf []byte
}

func (f *followed) drain(ctx context.Context, emit func(Entry) error) error {
	return f.lines.read(ctx, f.file, f.buf, emit)
}

// watch watches the directories of files, where rotation replaces them. It returns nil without inotify, which not
// every kernel, file system and user has. The file is read as often as Ended is asked in any case: a network file
// system does not tell of every change.
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

func (f *followed) follow(ctx context.Context, o Options, watch func(...string) *fsnotify.Watcher, emit func(Entry) error) error {
	var changes chan fsnotify.Event
	var failures chan error
	if w := watch(f.path, f.file.Name()); w != nil { // two directories where the path is a link of a dockershim
		defer w.Close()
		changes, failures = w.Events, w.Errors
	}
	poll := cmp.Or(o.Poll, 500*time.Millisecond)
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

// catchUp reads new entries. A file that has taken the path over waits for the next tick, or the end of the
// container: containerd makes the new file before it leaves the old one.
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
			if ended {
				return f.end(emit)
			}
			return nil
		case f.next != nil:
			if err := f.end(emit); err != nil {
				return err
			}
			f.file.Close()
			f.file, f.lines, f.next = f.next, lines{damaged: f.damaged}, newest
		case ended:
			f.next = newest
		default:
			f.next = newest
			return nil
		}
	}
}

// successor returns the file that has taken the path over, if any. A file that became shorter is read from its
// beginning.
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
		f.lines = lines{damaged: f.damaged}
		_, err = f.file.Seek(0, io.SeekStart)
	}
	return nil, err
}
