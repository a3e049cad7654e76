package logfile

import (
	"context"
	"errors"
	"os"
	"time"
	"unsafe"
)

// Options choose entries.
type Options struct {
	Since, Until time.Time // zero: no limit
	Tail         int       // lines from the end; below 0: all
	Stream       string    // Stdout or Stderr; "": both
	// Follow goes on after the end of the file until Ended says that nothing
	// more will come.
	Follow bool
	Ended  func(context.Context) (bool, error)
	// Poll is how often a followed file is looked at; 0: 100 ms.
	Poll time.Duration
}

// errUntil ends reading behind the last entry that Until lets through.
var errUntil = errors.New("past the end of the time asked for")

func (o Options) wants(e Entry) bool {
	return (o.Stream == "" || e.Stream == o.Stream) && !e.Time.Before(o.Since)
}

func (o Options) isOver(e Entry) bool { return !o.Until.IsZero() && e.Time.After(o.Until) }

// Read hands the entries of the log at path, older files first, to emit.
func Read(ctx context.Context, path string, o Options, emit func(Entry) error) error {
	err := read(ctx, path, o, func(e Entry) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case o.isOver(e):
			return errUntil
		case !o.wants(e):
			return nil
		}
		return emit(e)
	})
	if errors.Is(err, errUntil) {
		return nil
	}
	return err
}

func read(ctx context.Context, path string, o Options, emit func(Entry) error) error {
	current, err := openFollowed(path)
	if err != nil {
		return err
	}
	defer current.close()
	history := func(emit func(Entry) error) error {
		older, err := rotated(path)
		if err != nil {
			return err
		}
		for _, file := range older {
			if skipOld(file, o.Since) {
				continue
			}
			if err := readWhole(ctx, file, emit); err != nil {
				return err
			}
		}
		return current.drain(ctx, emit)
	}
	if err := o.tail(ctx, current, history, emit); err != nil {
		return err
	}
	if !o.Follow {
		return nil
	}
	return current.follow(ctx, o, emit)
}

// skipOld says that a file was last written before the time asked for.
func skipOld(file string, since time.Time) bool {
	info, err := os.Stat(file)
	return err == nil && info.ModTime().Before(since)
}

// tail hands on the last lines of the history, or all of it.
func (o Options) tail(ctx context.Context, current *followed, history func(func(Entry) error) error, emit func(Entry) error) error {
	if o.Tail < 0 {
		return history(emit)
	}
	if o.Tail > 0 && o.Stream == "" && o.Until.IsZero() && current.seekTail(o.Tail) {
		return current.drain(ctx, emit)
	}
	last := Last{Lines: o.Tail}
	err := history(func(e Entry) error {
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

// entrySize is what an entry takes besides its text. A log may be of parts of lines that
// have none.
const entrySize = int(unsafe.Sizeof(Entry{}))

// Last keeps the entries of the last lines.
type Last struct {
	Lines   int // how many
	kept    int
	size    int  // of entries, in memory
	cut     bool // they were too much
	entries []Entry
}

// Add takes the next entry.
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
	for l.size > maxKept {
		l.drop()
		l.cut = true
	}
}

// drop drops the oldest entry.
func (l *Last) drop() {
	if !l.entries[0].Partial() {
		l.kept--
	}
	l.size -= len(l.entries[0].Text) + entrySize
	l.entries[0] = Entry{}
	l.entries = l.entries[1:]
}

// Emit hands on what was kept.
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
