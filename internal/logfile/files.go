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

// Open opens a container's log. It follows a single symbolic link, because a dockershim links the log to the engine's
// file. The link must be absolute and point to ID/ID-json.log, in any directory. A container that mounts the pod's log
// directory can replace its log with a link. Such a link reaches only the engine's logs, including logs of other
// containers, and the container's own directories, because the container can create files of that name nowhere else.
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
			continue // older than Since, or rotated just now and read below
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
			return err // a running container may still complete the last line, so the line is left out
		}
	}
	return f.end(emit)
}

// rotated lists rotated files, oldest first: PATH.1 and up, which Docker numbers, and PATH.20060102-150405, which a
// kubelet dates. Both may end in .gz.
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
		// A kubelet keeps the plain file until the compressed one is complete.
		if whole, zipped := strings.CutSuffix(entry.Name(), ".gz"); zipped && slices.Contains(found, dir+whole) {
			continue
		}
		found = append(found, dir+entry.Name())
	}
	// Older files have higher numbers but earlier dates.
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
	if errors.Is(err, os.ErrNotExist) && !strings.HasSuffix(path, ".gz") { // compressed in the meantime
		path += ".gz"
		file, err = bounded.Open(path)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil // removed in the meantime
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
	next *os.File // file that has replaced this one at the path; nil if it was not rotated
	lines
	buf []byte
}

func (f *followed) drain(ctx context.Context, emit func(Entry) error) error {
	return f.lines.read(ctx, f.file, f.buf, emit)
}

// watch watches the directories of files, because rotation replaces the files. It returns nil if inotify is
// unavailable, which depends on kernel, file system and user limits. The file is polled in any case, because network
// file systems do not report every change.
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
	if w := watch(f.path, f.file.Name()); w != nil { // two directories, because a dockershim's path is a link
		defer w.Close()
		changes, failures = w.Events, w.Errors
	}
	poll := cmp.Or(o.Poll, 500*time.Millisecond)
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for ask := true; ; {
		ended := false
		if ask { // ask before reading, so that the last lines are not missed
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
			ticker.Reset(poll) // give the writer a full interval to finish the old file
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			ask = true
		case <-changes: // includes rotated files: the writer may still have one open
			ask = false
		case err := <-failures:
			ask = false
			if !errors.Is(err, fsnotify.ErrEventOverflow) { // an overflow only means that events were lost
				changes, failures = nil, nil
			}
		}
	}
}

// catchUp reads new entries. After a rotation it switches to the new file at the next tick or when the container ends,
// because containerd creates the new file before it stops writing to the old one.
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

// successor returns the file that has replaced the current one at the path, if any. A truncated file is read from the
// start.
func (f *followed) successor() (*os.File, error) {
	mine, err := cmp.Or(f.next, f.file).Stat()
	if err != nil {
		return nil, err
	}
	there, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // during a rotation, or removed
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
		return nil, nil // f.next is still at the path; it is not read yet, so it needs no check for truncation
	}
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err == nil && there.Size() < at {
		f.lines = lines{damaged: f.damaged}
		_, err = f.file.Seek(0, io.SeekStart)
	}
	return nil, err
}
