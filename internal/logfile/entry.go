// Package logfile reads container logs in CRI's format and Docker's JSON format: the current file and its rotated
// predecessors, compressed or not, once or following a running container.
package logfile

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	Stdout = "stdout"
	Stderr = "stderr"
)

// Entry is a line with its newline, or a part of a line without it.
type Entry struct {
	Time   time.Time
	Stream string
	Text   []byte
}

// Partial reports whether the line continues in the stream's next entry.
func (e Entry) Partial() bool { return !bytes.HasSuffix(e.Text, []byte("\n")) }

func parse(line []byte) (Entry, error) {
	if bytes.HasPrefix(line, []byte("{")) {
		return parseJSON(line)
	}
	return parseCRI(line)
}

func parseJSON(line []byte) (Entry, error) {
	var record struct {
		Log    string    `json:"log"`
		Stream string    `json:"stream"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(line, &record); err != nil {
		return Entry{}, fmt.Errorf("malformed log line: %w", err)
	}
	return Entry{Time: record.Time, Stream: record.Stream, Text: []byte(record.Log)}, nil
}

func parseCRI(line []byte) (Entry, error) {
	stamp, rest, ok1 := bytes.Cut(line, []byte(" "))
	stream, rest, ok2 := bytes.Cut(rest, []byte(" "))
	tags, text, _ := bytes.Cut(rest, []byte(" "))
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if !ok1 || !ok2 || (string(stream) != Stdout && string(stream) != Stderr) || err != nil {
		return Entry{}, fmt.Errorf("malformed log line %q", line[:min(len(line), 60)])
	}
	first, _, _ := bytes.Cut(tags, []byte(":"))
	text = bytes.Clone(text)
	if string(first) != "P" {
		text = append(text, '\n')
	}
	return Entry{Time: at, Stream: string(stream), Text: text}, nil
}

// maxLine limits the part of a line in memory. Runtimes split lines at 16 KiB. A longer line in CRI's format is emitted
// in parts. A longer line in any other format is dropped and counts as damaged.
const maxLine = 1 << 20

// lines splits a log file into complete lines. A container may write a line without end.
type lines struct {
	rest    []byte // incomplete last line
	skip    bool   // the line is not a log record: drop it up to its end
	zeros   bool   // the line began with NUL bytes, as after a power failure; they are dropped
	damaged *int   // number of invalid records and of lines with leading NUL bytes; may be nil
}

func (l *lines) damage() {
	if l.damaged != nil {
		*l.damaged++
	}
}

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
		if err == nil && isFile && (l.skip || l.zeros && len(l.rest) == 0) {
			err = skipHole(file)
		}
		if err != nil {
			return err
		}
	}
	return context.Cause(ctx)
}

// skipHole seeks to the next data. A container that can write its log can make it sparse and of any size.
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
	case errors.Is(err, unix.ENXIO): // no data up to the end
		data = max(at, info.Size())
	case err != nil: // not supported by the file system
		data = at
	}
	_, err = file.Seek(data, io.SeekStart)
	return err
}

func (l *lines) add(b []byte, emit func(Entry) error) error {
	l.rest = append(l.rest, b...)
	for {
		if bytes.HasPrefix(l.rest, []byte{0}) && !l.skip {
			l.rest, l.zeros = bytes.TrimLeft(l.rest, "\x00"), true
		}
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
		if err := l.line(line, emit); err != nil {
			return err
		}
	}
	if len(l.rest) < maxLine {
		return nil
	}
	return l.part(emit)
}

func (l *lines) line(line []byte, emit func(Entry) error) error {
	entry, err := parse(line)
	if err != nil || l.zeros {
		l.zeros = false
		l.damage()
	}
	if err != nil {
		return nil
	}
	return emit(entry)
}

func (l *lines) end(emit func(Entry) error) error {
	line := l.rest
	l.rest = nil
	if len(line) == 0 || l.skip {
		return nil
	}
	return l.line(line, emit)
}

// part emits the beginning of a line in CRI's format that is too long. The rest becomes another part with the same time
// and stream. A line in any other format, such as Docker's JSON, cannot be divided and is dropped.
func (l *lines) part(emit func(Entry) error) error {
	entry, err := parseCRI(l.rest)
	if l.skip || err != nil {
		if !l.skip {
			l.damage()
		}
		l.rest, l.skip, l.zeros = nil, true, false
		return nil
	}
	entry.Text = bytes.TrimSuffix(entry.Text, []byte("\n"))
	l.rest = bytes.Clone(l.rest[:len(l.rest)-len(entry.Text)])
	return emit(entry)
}
