package logs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/docker/docker/api/types/container"
)

// ReadOptions choose the records of a log.
type ReadOptions struct {
	Follow       bool
	Tail         int // the last records; negative: all
	Since, Until time.Time
}

// Record is one record of the engine: a line, or a part of one.
type Record struct {
	Time    time.Time
	Stderr  bool
	Text    []byte // without the newline; valid until the next record
	Partial bool   // the line goes on in the next record of the stream
}

// Read passes the engine's records of a container to each, until the end of the
// log or, when following, of the container.
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
	src := newSource(r, c.Config != nil && c.Config.Tty)
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

// engineTime writes a time as the log API takes it; the zero time is no limit.
func engineTime(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return fmt.Sprintf("%d.%09d", t.Unix(), t.Nanosecond())
}
