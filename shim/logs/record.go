package logs

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"
)

const (
	streamStdout = "stdout"
	streamStderr = "stderr"
	tagFull      = 'F'
	tagPartial   = 'P'

	stampLayout = "2006-01-02T15:04:05.000000000Z07:00"
	// chunkSize is the length at which the engine splits long lines.
	chunkSize = 16 << 10
	// maxFrame is larger than any record of the engine, whatever the log driver.
	maxFrame = 1 << 20
)

type record struct {
	stamp  []byte // time in the engine's form
	time   time.Time
	stream string
	tag    byte
	text   []byte // without the newline
}

func (r record) line() []byte {
	b := make([]byte, 0, len(r.stamp)+len(r.stream)+len(r.text)+5)
	b = append(b, r.stamp...)
	b = append(b, ' ')
	b = append(b, r.stream...)
	b = append(b, ' ', r.tag, ' ')
	b = append(b, r.text...)
	return append(b, '\n')
}

var errFormat = errors.New("unexpected format of the engine's log")

type source interface {
	// next returns io.EOF after the last record. The record is valid until the next call.
	next() (record, error)
	idle() bool
}

func newSource(r io.Reader, c container.InspectResponse) source {
	buffered, local := bufio.NewReaderSize(r, bufferSize), true
	if c.HostConfig != nil {
		driver := c.HostConfig.LogConfig.Type
		local = driver != "json-file" && driver != "journald"
	}
	if c.Config != nil && c.Config.Tty {
		return &plainSource{r: buffered, local: local}
	}
	return &framedSource{r: buffered, local: local}
}

type framedSource struct {
	r     *bufio.Reader
	buf   []byte
	local bool    // log driver "local", which some other drivers use as read cache
	cut   [2]bool // the previous record of the stream was split
}

func (s *framedSource) idle() bool { return s.r.Buffered() == 0 }

func (s *framedSource) next() (record, error) {
	var header [8]byte
	if _, err := io.ReadFull(s.r, header[:]); err != nil {
		return record{}, err
	}
	size := binary.BigEndian.Uint32(header[4:])
	if size > maxFrame {
		return record{}, fmt.Errorf("a record of %d bytes: %w", size, errFormat)
	}
	if uint32(cap(s.buf)) < size {
		s.buf = make([]byte, size)
	}
	s.buf = s.buf[:size]
	if _, err := io.ReadFull(s.r, s.buf); err != nil {
		return record{}, err
	}
	stream, cut := streamStdout, &s.cut[0]
	switch header[0] {
	case 2:
		stream, cut = streamStderr, &s.cut[1]
	case 3:
		return record{}, fmt.Errorf("the engine reports %q: %w", s.buf, errFormat)
	}
	rec, err := parseRecord(s.buf, stream, s.local && *cut)
	*cut = len(rec.text) >= chunkSize && rec.tag == tagPartial
	return rec, err
}

// parseRecord parses "time text". A line without newline is incomplete, except with the driver "local", which omits the
// newline of the last part of a split line.
func parseRecord(b []byte, stream string, lastPart bool) (record, error) {
	stamp, text, ok := bytes.Cut(b, []byte(" "))
	if !ok {
		return record{}, fmt.Errorf("a record without time: %w", errFormat)
	}
	at, err := time.Parse(time.RFC3339Nano, string(stamp))
	if err != nil {
		return record{}, fmt.Errorf("%w: %w", errFormat, err)
	}
	r := record{stamp: stamp, time: at, stream: stream, tag: tagFull, text: text}
	if full, ok := bytes.CutSuffix(text, []byte("\n")); ok {
		r.text = full
	} else if len(text) >= chunkSize || !lastPart {
		r.tag = tagPartial // as in containerd, also if the container ended without a newline
	}
	return r, nil
}

// plainSource reads the log of a terminal, which has no frame headers. All parts of a split line have the same time.
// With the driver "local" the last part has no newline: it ends where the next timestamp starts.
type plainSource struct {
	r     *bufio.Reader
	buf   []byte
	local bool   // log driver "local" or another driver that uses it as read cache
	stamp []byte // timestamp of the next record including its space, if already read
	cutAt []byte // timestamp of the previous record, if that was split
}

func (s *plainSource) idle() bool { return s.r.Buffered() == 0 }

func (s *plainSource) next() (record, error) {
	stamp, err := s.stamp, error(nil)
	if s.stamp = nil; stamp == nil {
		stamp, err = s.r.ReadSlice(' ')
	}
	if err != nil {
		return record{}, err
	}
	last := bytes.Equal(stamp, s.cutAt)
	s.buf, s.cutAt = append(s.buf[:0], stamp...), nil
	head := len(s.buf)
	for {
		c, err := s.r.ReadByte()
		if errors.Is(err, io.EOF) && len(s.buf) > head {
			break // the stream ended within a line; its text is still returned as a record
		}
		if err != nil { // the stream broke within a record, which will be repeated
			return record{}, err
		}
		s.buf = append(s.buf, c)
		if c == '\n' || len(s.buf) >= maxFrame {
			break
		}
		if len(s.buf)-head >= chunkSize {
			if next, err := s.r.Peek(head); err == nil && bytes.Equal(next, s.buf[:head]) { // another part of the same line
				s.cutAt = bytes.Clone(next)
				break
			}
		}
		if last && s.follows(head) {
			return parseRecord(s.buf, streamStdout, true)
		}
	}
	return parseRecord(s.buf, streamStdout, s.local && last)
}

// follows reports whether the buffer ends with the timestamp of the next record, and moves the timestamp to s.stamp.
// next calls follows after each byte of a split line's later part, because the driver "local" omits the newline of the
// last part.
func (s *plainSource) follows(head int) bool {
	at := len(s.buf) - head
	if at < head || s.buf[len(s.buf)-1] != ' ' || s.buf[at+len("2006-01-02")] != 'T' {
		return false
	}
	own, err := time.Parse(time.RFC3339Nano, string(s.buf[:head-1]))
	if err != nil {
		return false
	}
	next, err := time.Parse(time.RFC3339Nano, string(s.buf[at:len(s.buf)-1]))
	if err != nil || next.Before(own) {
		return false
	}
	s.stamp = bytes.Clone(s.buf[at:])
	s.buf = s.buf[:at]
	return true
}

type ReadOptions struct {
	Follow       bool
	Tail         int // number of records from the end; negative: all
	Since, Until time.Time
}

type Record struct {
	Time    time.Time
	Stderr  bool
	Text    []byte // without the newline; valid until the next record
	Partial bool   // the line continues in the stream's next record
}

func Read(ctx context.Context, engine Engine, id string, o ReadOptions, each func(Record) error) error {
	c, err := engine.ContainerInspect(ctx, id)
	if err != nil {
		return fmt.Errorf("container %q: %w", id, err)
	}
	options := container.LogsOptions{
		ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: o.Follow,
		Since: engineTime(o.Since), Until: engineTime(o.Until),
	}
	if o.Tail >= 0 {
		options.Tail = strconv.Itoa(o.Tail)
	}
	r, err := engine.ContainerLogs(ctx, c.ID, options)
	if err != nil {
		return fmt.Errorf("log of container %q: %w", id, err)
	}
	defer r.Close()
	src := newSource(r, c)
	for {
		rec, err := src.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("log of container %q: %w", id, err)
		}
		err = each(Record{Time: rec.time, Stderr: rec.stream == streamStderr, Text: rec.text, Partial: rec.tag == tagPartial})
		if err != nil {
			return err
		}
	}
}

func engineTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond())
}
