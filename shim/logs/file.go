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

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/internal/logdir"
)

const (
	fileMode = 0o640
	// maxTail is how much of a file is read to find where it stops. It is far
	// more than a container writes in the overlap.
	maxTail = 32 << 20
)

// openFile opens a log for writing at its end and reads its position. What
// another shim left as a link to the engine's file is replaced in one step by a
// new file: written through it, lines would land in the engine's own log. All
// lines of the file may be asked for, as far as its end goes.
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
	pos, err := resume(f, dir, name, all)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("log %s: %w", at.Path, err), f.Close())
	}
	return f, pos, nil
}

// create opens the log in its directory. A link that is put in its place in the
// meantime leads to nothing outside of that directory.
func create(dir *os.Root, name string) (*os.File, error) {
	if info, err := dir.Lstat(name); err == nil && info.Mode()&fs.ModeSymlink != 0 {
		return replaceLink(dir, name)
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

func replaceLink(dir *os.Root, name string) (*os.File, error) {
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

// errTaken says that another shim on the same engine writes a log.
var errTaken = errors.New("another shim writes this log")

// take makes this process the only writer of a log among the shims. The kernel
// drops the lock with the file, however the process ends. A file system that knows no
// locks has as many writers as there are shims.
func take(f *os.File) error {
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("log %s: %w", f.Name(), errTaken)
	}
	return nil
}

// resume finds out what a file holds at its end and cuts off a line that was
// not finished. Where the file is empty, because it has just been rotated, the
// newest file that was rotated away says where the log stopped. All of it is
// remembered where times do not tell what the engine will repeat.
func resume(f *os.File, dir *os.Root, name string, all bool) (*position, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	pos := newPosition()
	tail, whole, err := readTail(f, info.Size())
	if err != nil {
		return nil, err
	}
	if whole < info.Size() {
		if err := f.Truncate(whole); err != nil {
			return nil, err
		}
	}
	if whole == 0 {
		tail = rotatedTail(dir, name)
	}
	note(pos, tail, all)
	return pos, nil
}

// readTail returns the last lines of a file and the size of its whole lines.
func readTail(f io.ReaderAt, size int64) (tail []byte, whole int64, err error) {
	from := max(0, size-maxTail)
	buf := make([]byte, size-from)
	if _, err := f.ReadAt(buf, from); err != nil && !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	end := bytes.LastIndexByte(buf, '\n') + 1
	buf = buf[:end]
	if from > 0 { // the first line may have lost its beginning
		buf = buf[bytes.IndexByte(buf, '\n')+1:]
	}
	return buf, from + int64(end), nil
}

// note reads lines from the last one back to the first that the engine will not
// repeat, then notes them in their order. Where the clock was put back, that may
// be any.
func note(pos *position, tail []byte, all bool) {
	lines := slices.Collect(bytes.Lines(tail))
	newest := newPosition()
	first := len(lines)
	if all = all || first > 0 && clockWasPutBack(lines); all {
		first = 0
	}
	for ; first > 0; first-- {
		at, ok := lineTime(lines[first-1])
		if ok && at.After(newest.last) {
			newest.last = at
		}
		// Twice the overlap, as lines may be out of order.
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

func clockWasPutBack(lines [][]byte) bool {
	at, ok := lineTime(lines[len(lines)-1])
	return ok && string(latest(lines)) > at.Add(overlap).UTC().Format(time.RFC3339)
}

// rotatedTail reads the end of the newest file that was moved out of the way. A
// kubelet names it after the log and the time, and compresses older ones only.
func rotatedTail(dir *os.Root, log string) []byte {
	names, err := fs.Glob(dir.FS(), escapeGlob(log)+".*")
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
		tail, _, err := readTail(f, info.Size())
		if err != nil {
			return nil
		}
		return tail
	}
	return nil
}

func escapeGlob(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}
