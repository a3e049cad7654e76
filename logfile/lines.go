package logfile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxLine is how much of a line of a file is kept in memory. Runtimes cut what a
// container writes at 16 KiB; a longer line is handed on in parts.
const maxLine = 1 << 20

// lines splits what is read of a log file into whole lines. The writer of the file may
// never end a line.
type lines struct {
	rest []byte // the beginning of a line whose end is not read yet
	skip bool   // the line is no log record, and is left out as far as it goes
}

// read takes all that there is to read.
func (l *lines) read(ctx context.Context, from io.Reader, buf []byte, emit func(Entry) error) error {
	file, isFile := from.(*os.File)
	for ctx.Err() == nil {
		n, err := from.Read(buf)
		if emitErr := l.add(buf[:n], emit); emitErr != nil {
			return emitErr
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil && l.skip && isFile {
			err = skipHole(file)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// skipHole goes on where a file has data again. A container that can write its log
// can make it as long as it likes.
func skipHole(file *os.File) error {
	at, err := file.Seek(0, io.SeekCurrent)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	data, err := unix.Seek(int(file.Fd()), at, unix.SEEK_DATA)
	switch {
	case errors.Is(err, unix.ENXIO): // there is none up to the end
		data = max(at, info.Size())
	case err != nil: // not known here
		data = at
	}
	_, err = file.Seek(data, io.SeekStart)
	return err
}

// add takes the next bytes of the file.
func (l *lines) add(b []byte, emit func(Entry) error) error {
	l.rest = append(l.rest, b...)
	for {
		end := bytes.IndexByte(l.rest, '\n')
		if end < 0 {
			break
		}
		line := l.rest[:end]
		l.rest = l.rest[end+1:]
		if l.skip {
			l.skip = false
			continue
		}
		// One that is no log record is left out, as after a crash of the machine.
		if entry, err := parse(line); err == nil {
			if err := emit(entry); err != nil {
				return err
			}
		}
	}
	if len(l.rest) < maxLine {
		return nil
	}
	return l.part(emit)
}

// part hands on what there is of a line that is too long; what follows is another
// part of the same time and stream.
func (l *lines) part(emit func(Entry) error) error {
	entry, err := parseCRI(l.rest)
	if l.skip || err != nil {
		l.rest, l.skip = nil, true
		return nil
	}
	entry.Text = bytes.TrimSuffix(entry.Text, []byte("\n"))
	l.rest = bytes.Clone(l.rest[:len(l.rest)-len(entry.Text)])
	return emit(entry)
}

// maxKept bounds what is kept of a log's last lines.
const maxKept = 256 << 20

var errKept = errors.New("the last lines that were asked for are too long: only their last " + fmt.Sprint(maxKept>>20) + " MiB are shown")
