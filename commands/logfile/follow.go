package logfile

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"time"
)

const defaultPoll = 100 * time.Millisecond

// followed is the current file of a log.
type followed struct {
	path string
	file *os.File
	rest []byte // the beginning of a line whose end is not written yet
	buf  []byte
}

func openFollowed(path string) (*followed, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &followed{path: path, file: file, buf: make([]byte, 64<<10)}, nil
}

func (f *followed) close() { f.file.Close() }

// drain hands on all whole lines that are there.
func (f *followed) drain(emit func(Entry) error) error {
	for {
		n, err := f.file.Read(f.buf)
		f.rest = append(f.rest, f.buf[:n]...)
		if emitErr := f.emitLines(emit); emitErr != nil {
			return emitErr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (f *followed) emitLines(emit func(Entry) error) error {
	for {
		end := bytes.IndexByte(f.rest, '\n')
		if end < 0 {
			return nil
		}
		line := f.rest[:end+1]
		f.rest = f.rest[end+1:]
		if err := emitLine(line, emit); err != nil {
			return err
		}
	}
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
		if err := f.catchUp(emit); err != nil || ended {
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
func (f *followed) catchUp(emit func(Entry) error) error {
	next, err := f.successor()
	if err != nil {
		return err
	}
	if err := f.drain(emit); err != nil || next == nil {
		return err
	}
	f.close()
	f.file, f.rest = next, nil
	return f.drain(emit)
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
		next, err := os.Open(f.path)
		if errors.Is(err, os.ErrNotExist) {
			return nil, nil
		}
		return next, err
	}
	at, err := f.file.Seek(0, io.SeekCurrent)
	if err == nil && there.Size() < at {
		f.rest = nil
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
// there are not that many. Parts of lines do not count as lines.
func tailOffset(file io.ReaderAt, size int64, n int) (int64, error) {
	const block = 64 << 10
	var tail []byte
	for start := size; start > 0; {
		step := min(start, int64(block))
		start -= step
		head := make([]byte, step)
		if _, err := file.ReadAt(head, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		tail = append(head, tail...)
		if at, ok := lastLines(tail, n); ok {
			return start + int64(at), nil
		}
	}
	return 0, nil
}

// lastLines finds where the last n lines of output begin within whole log
// lines, if there are more than n.
func lastLines(text []byte, n int) (int, bool) {
	end := bytes.LastIndexByte(text, '\n') + 1
	for lines := 0; end > 0; {
		start := bytes.LastIndexByte(text[:end-1], '\n') + 1
		if start == 0 {
			return 0, false // may be the middle of a line
		}
		if entry, err := parse(text[start : end-1]); err == nil && !entry.Partial() {
			lines++
		}
		if lines > n {
			return end, true
		}
		end = start
	}
	return 0, false
}
