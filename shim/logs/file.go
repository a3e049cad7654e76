package logs

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/internal/glob"
	"github.com/crishim/crishim/shim/internal/logdir"
)

const (
	fileMode = 0o640
	// maxTail limits how much of the end of a log is read for its position. It is far more than a container writes in the
	// time that the engine is asked to repeat.
	maxTail = 32 << 20
)

// openFile opens a log for writing, truncates an incomplete last line and reads the position. If the log is empty, the
// position comes from the newest rotated file. With all, the position includes every line that was read. The caller sets all
// if the clock was set back, because timestamps then do not show which lines the engine will repeat.
func openFile(at logdir.Place, all bool) (*os.File, *position, error) {
	dir, name, err := at.Open()
	if err != nil {
		return nil, nil, err
	}
	defer dir.Close()
	f, err := create(dir, name)
	if err != nil {
		return nil, nil, err
	}
	pos := newPosition()
	info, err := f.Stat()
	if err == nil {
		var tail []byte
		var whole int64
		if tail, whole, err = readTail(f, info.Size()); err == nil && whole < info.Size() {
			err = f.Truncate(whole)
		}
		if whole == 0 {
			tail = rotatedTail(dir, name)
		}
		note(pos, tail, all)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("log %s: %w", at.Path, err), f.Close())
	}
	return f, pos, nil
}

// create opens the log. It atomically replaces a link to the engine's file, because lines written through the link
// would go to the engine's own log.
func create(dir *os.Root, name string) (*os.File, error) {
	if info, err := dir.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		fresh := "." + name + "." + rand.Text()
		f, err := dir.OpenFile(fresh, os.O_RDWR|os.O_APPEND|os.O_CREATE|os.O_EXCL, fileMode)
		if err != nil {
			return nil, fmt.Errorf("replace the link at the log's path: %w", err)
		}
		if err := errors.Join(take(f), f.Chmod(fileMode), dir.Rename(fresh, name)); err != nil {
			return nil, errors.Join(fmt.Errorf("replace the link at the log's path: %w", err), f.Close(), dir.Remove(fresh))
		}
		return f, nil
	}
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_APPEND|os.O_CREATE|unix.O_NONBLOCK, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open log: %w", err)
	}
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(fmt.Errorf("log %s is not a regular file", f.Name()), err, f.Close())
	}
	if err := take(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

var errTaken = errors.New("another shim writes this log")

// take locks a log, so that a single shim writes it. Without file locks, all shims write.
func take(f *os.File) error {
	if ok, err := filelock.TryFile(f); !ok && err == nil {
		return fmt.Errorf("log %s: %w", f.Name(), errTaken)
	}
	return nil
}

func readTail(f io.ReaderAt, size int64) (tail []byte, whole int64, err error) {
	from := max(0, size-maxTail)
	buf := make([]byte, size-from)
	if _, err := f.ReadAt(buf, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	end := bytes.LastIndexByte(buf, '\n') + 1
	buf = buf[:end]
	if from > 0 { // the first line may be incomplete
		buf = buf[bytes.IndexByte(buf, '\n')+1:]
	}
	return buf, from + int64(end), nil
}

// note records the lines that the engine may repeat. If the clock was set back, these can be any lines.
func note(pos *position, tail []byte, all bool) {
	lines := slices.Collect(bytes.Lines(tail))
	newest := newPosition()
	first := len(lines)
	if first > 0 {
		at, ok := lineTime(lines[first-1])
		all = all || ok && string(latest(lines)) > at.Add(overlap).UTC().Format(time.RFC3339)
	}
	if all {
		first = 0
	}
	for ; first > 0; first-- {
		at, ok := lineTime(lines[first-1])
		if ok && at.After(newest.last) {
			newest.last = at
		}
		// Lines may be out of order, so twice the overlap is read.
		if ok && at.Before(newest.since().Add(-overlap)) {
			break
		}
	}
	for _, line := range lines[first:] {
		if at, ok := lineTime(line); ok {
			pos.wrote(at, line)
		}
	}
}

// rotatedTail reads the end of the newest uncompressed rotated file.
func rotatedTail(dir *os.Root, log string) []byte {
	names, err := fs.Glob(dir.FS(), glob.Escape(log)+".*")
	if err != nil {
		return nil
	}
	slices.Sort(names)
	for _, name := range slices.Backward(names) {
		if strings.HasSuffix(name, ".gz") || strings.HasSuffix(name, ".tmp") {
			continue
		}
		f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil || !info.Mode().IsRegular() {
			return nil
		}
		tail, _, _ := readTail(f, info.Size())
		return tail
	}
	return nil
}

func (f *follower) change(open func() (*os.File, error)) error {
	_ = filelock.UnlockFile(f.file)
	file, err := open()
	if err != nil {
		_ = take(f.file)
		return err
	}
	_ = f.file.Close()
	f.file = file
	f.out.Reset(disk{f, file})
	return nil
}

func (f *follower) openAgain(all bool) error {
	return f.change(func() (*os.File, error) {
		file, pos, err := openFile(f.at, all)
		if err == nil {
			f.pos = pos
		}
		return file, err
	})
}

// reopen continues in a new file after a rotation. If another shim writes the log, reopen only checks that the file
// exists.
func (f *follower) reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.file != nil {
		if err := f.flushLocked(); err != nil {
			return err
		}
	}
	dir, name, err := f.at.Open()
	if err != nil {
		return err
	}
	defer dir.Close()
	if f.file == nil {
		if _, err := dir.Lstat(name); err != nil {
			return fmt.Errorf("%w, which was renamed: %w", errTaken, errdefs.ErrFailedPrecondition)
		}
		return nil
	}
	return f.change(func() (*os.File, error) { return create(dir, name) }) // all lines are flushed
}
