package logfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/crishim/crishim/internal/bounded"
)

const defaultPoll = 100 * time.Millisecond

// followed is the current file of a log.
type followed struct {
	path string
	file *os.File
	lines
	buf []byte
}

func openFollowed(path string) (*followed, error) {
	file, err := bounded.OpenLog(path)
	if err != nil {
		return nil, err
	}
	return &followed{path: path, file: file, buf: make([]byte, 64<<10)}, nil
}

func (f *followed) close() { f.file.Close() }

// drain hands on all whole lines that are there.
func (f *followed) drain(ctx context.Context, emit func(Entry) error) error {
	return f.lines.read(ctx, f.file, f.buf, emit)
}

// follow hands on what is written from here on.
func (f *followed) follow(ctx context.Context, o Options, emit func(Entry) error) error {
	poll := o.Poll
	if poll <= 0 {
		poll = defaultPoll
	}
	ticker := time.NewTicker(poll)
	defer ticker.Stop()
	for {
		// Asked before reading: what was written before the end is then read.
		ended, err := o.Ended(ctx)
		if err != nil {
			return err
		}
		if err := f.catchUp(ctx, emit); err != nil || ended {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
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
	f.close()
	f.file, f.lines = next, lines{}
	return f.drain(ctx, emit)
}

// successor is the file that has taken the path over, nil while none has. A
// file that became shorter starts anew.
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
		next, err := bounded.OpenLog(f.path)
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

// seekTail goes to where the last n lines of the file begin, reading from its
// end. It says no where the file is shorter or ends within a line of output,
// as then a closer look is needed.
func (f *followed) seekTail(n int) bool {
	size, err := f.file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return false
	}
	start, err := tailOffset(f.file, size, n)
	if err != nil || start <= 0 {
		start = -1
	}
	if _, err := f.file.Seek(max(start, 0), io.SeekStart); err != nil {
		return false
	}
	return start > 0
}

// tailOffset is where the last n whole lines before size begin; 0 or less when
// there are not that many, or one is too long to look at. Parts of lines do not count
// as lines.
func tailOffset(file io.ReaderAt, size int64, n int) (int64, error) {
	const block = 64 << 10
	var tail []byte // what begins at start and is not counted yet
	found, whole := 0, false
	for start := size; start > 0 && len(tail) < maxLine; {
		head := make([]byte, min(start, int64(block)))
		start -= int64(len(head))
		if _, err := file.ReadAt(head, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		tail = append(head, tail...)
		if !whole { // the end of the file may be the beginning of a line
			end := bytes.LastIndexByte(tail, '\n') + 1
			if end == 0 {
				continue
			}
			tail, whole = tail[:end], true
		}
		for {
			line := bytes.LastIndexByte(tail[:len(tail)-1], '\n') + 1
			if line == 0 {
				break // it may begin further up
			}
			if entry, err := parse(tail[line : len(tail)-1]); err == nil && !entry.Partial() {
				found++
			}
			if found > n {
				return start + int64(len(tail)), nil
			}
			tail = tail[:line]
		}
	}
	return 0, nil
}
