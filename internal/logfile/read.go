package logfile

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"
	"unsafe"

	"github.com/fsnotify/fsnotify"
)

type Options struct {
	Since, Until time.Time // zero: no limit
	Tail         int       // number of lines from the end; below 0: all
	Stream       string    // Stdout or Stderr; "": both
	// Follow continues at the end of the file until Ended reports that the container has ended.
	Follow bool
	Ended  func(context.Context) (bool, error)
	// Damaged counts invalid records and lines with leading NUL bytes. May be nil.
	Damaged *int
	// Poll is the interval at which Follow calls Ended and reads the file; 0: 500 ms. A change that inotify reports is
	// read at once.
	Poll time.Duration
}

var errUntil = errors.New("past the end of the time asked for")

func (o Options) wants(e Entry) bool {
	return (o.Stream == "" || e.Stream == o.Stream) && !e.Time.Before(o.Since)
}

func (o Options) isOver(e Entry) bool { return !o.Until.IsZero() && e.Time.After(o.Until) }

func Read(ctx context.Context, path string, o Options, emit func(Entry) error) error {
	return read(ctx, path, o, watch, emit)
}

func read(ctx context.Context, path string, o Options, watch func(...string) *fsnotify.Watcher, emit func(Entry) error) error {
	file, err := Open(path)
	if err != nil {
		return err
	}
	current := &followed{path: path, file: file, lines: lines{damaged: o.Damaged}, buf: make([]byte, 64<<10)}
	defer func() {
		current.file.Close()
		current.next.Close() // may be nil
	}()
	wanted := func(e Entry) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case o.isOver(e):
			return errUntil
		case !o.wants(e):
			return nil
		}
		return emit(e)
	}
	err = o.tail(ctx, current, wanted)
	if err == nil && o.Follow {
		err = current.follow(ctx, o, watch, wanted)
	}
	if errors.Is(err, errUntil) {
		return nil
	}
	return err
}

func (o Options) tail(ctx context.Context, current *followed, emit func(Entry) error) error {
	if o.Tail < 0 {
		return current.history(ctx, o, emit)
	}
	if o.Tail > 0 && o.Stream == "" && o.Until.IsZero() && current.seekTail(o.Tail) {
		return current.drain(ctx, emit)
	}
	last := Last{Lines: o.Tail}
	err := current.history(ctx, o, func(e Entry) error {
		if o.isOver(e) {
			return errUntil
		}
		if o.wants(e) {
			last.Add(e)
		}
		return nil
	})
	if err != nil && !errors.Is(err, errUntil) {
		return err
	}
	if failed := last.Emit(emit); failed != nil {
		return failed
	}
	return err
}

// seekTail seeks to the start of the last n lines. It returns false if the file is shorter or ends with an incomplete
// line.
func (f *followed) seekTail(n int) bool {
	size, err := f.file.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return false
	}
	var last [1]byte
	if _, err := f.file.ReadAt(last[:], size-1); err != nil || last[0] != '\n' {
		_, _ = f.file.Seek(0, io.SeekStart)
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

// tailOffset returns the offset of the last n complete lines. It returns 0 if it does not find enough lines or a line
// is too long.
func tailOffset(file io.ReaderAt, size int64, n int) (int64, error) {
	const block = 64 << 10
	var tail []byte // bytes from start that are read but not counted yet
	found, whole := 0, false
	for start := size; start > 0 && len(tail) < maxLine; {
		head := make([]byte, min(start, int64(block)))
		start -= int64(len(head))
		if _, err := file.ReadAt(head, start); err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		tail = append(head, tail...)
		if !whole { // the file may end within a line
			end := bytes.LastIndexByte(tail, '\n') + 1
			if end == 0 {
				continue
			}
			tail, whole = tail[:end], true
		}
		for {
			line := bytes.LastIndexByte(tail[:len(tail)-1], '\n') + 1
			if line == 0 {
				break // the line may begin in an earlier block
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

// LastLines returns up to n of the last lines of a log's current file, with limit bytes in total, including newlines
// between them. If the last line alone is longer, its end is returned. Each part of a line that the runtime has split
// counts as a line.
func LastLines(path string, n, limit int) []string {
	f, err := Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	// The size is enough for limit bytes in n lines: each line has a prefix in the file, and JSON escapes a byte with up
	// to six. The minimum is enough for a single line, because runtimes split lines at 16 KiB.
	size := max(6*int64(limit)+int64(n)*128, 128<<10)
	var all []string
	end := io.NewSectionReader(f, max(info.Size()-size, 0), size)
	keep := func(e Entry) error {
		all = append(all, string(bytes.TrimSuffix(e.Text, []byte("\n"))))
		return nil
	}
	l := new(lines)
	if l.read(context.Background(), end, make([]byte, size), keep) != nil || l.end(keep) != nil {
		return nil
	}
	first := len(all)
	for left := limit; first > max(len(all)-n, 0); first-- {
		if left -= len(all[first-1]); left < 0 && first < len(all) {
			break
		}
		left-- // the byte of the newline between two lines
	}
	if first == len(all)-1 {
		text := all[first]
		if from := len(text) - limit; from > 0 {
			for end := min(from+utf8.UTFMax-1, len(text)); from < end && !utf8.RuneStart(text[from]); {
				from++ // start at a whole character
			}
			all[first] = text[from:]
		}
	}
	return all[first:]
}

const maxKept = 256 << 20

var errKept = errors.New("the last lines that were asked for are too long: only their last " + fmt.Sprint(maxKept>>20) + " MiB are shown")

const entrySize = int(unsafe.Sizeof(Entry{}))

type Last struct {
	Lines   int // maximum number of lines
	max     int // maximum in bytes; 0: maxKept
	kept    int
	size    int  // memory of the entries
	cut     bool // entries were dropped because of max
	entries []Entry
}

func (l *Last) Add(e Entry) {
	if l.Lines <= 0 {
		return
	}
	l.entries = append(l.entries, e)
	l.size += len(e.Text) + entrySize
	if !e.Partial() {
		l.kept++
	}
	for l.kept > l.Lines {
		l.drop()
	}
	for l.size > cmp.Or(l.max, maxKept) {
		l.drop()
		l.cut = true
	}
}

func (l *Last) drop() {
	if !l.entries[0].Partial() {
		l.kept--
	}
	l.size -= len(l.entries[0].Text) + entrySize
	l.entries[0] = Entry{}
	l.entries = l.entries[1:]
}

func (l *Last) Emit(emit func(Entry) error) error {
	for _, e := range l.entries {
		if err := emit(e); err != nil {
			return err
		}
	}
	if l.cut {
		return errKept
	}
	return nil
}
