package logs

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/internal/logdir"
)

// keptLog is an engine with the log of an ended container. Like a real engine, it returns the records since the
// requested time.
type keptLog struct {
	Engine
	stamps []time.Time
}

func (k *keptLog) ContainerInspect(context.Context, string) (container.InspectResponse, error) {
	return container.InspectResponse{ContainerJSONBase: &container.ContainerJSONBase{State: &container.State{}}, Config: &container.Config{}}, nil
}

func (k *keptLog) ContainerLogs(_ context.Context, _ string, o container.LogsOptions) (io.ReadCloser, error) {
	var since time.Time
	if o.Since != "" {
		seconds, nanos, _ := strings.Cut(o.Since, ".")
		s, err := strconv.ParseInt(seconds, 10, 64)
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(nanos, 10, 64)
		if err != nil {
			return nil, err
		}
		since = time.Unix(s, n)
	}
	var b bytes.Buffer
	for i, at := range k.stamps {
		if at.Before(since) {
			continue
		}
		text := fmt.Sprintf("%s line %d\n", at.UTC().Format(stampLayout), i)
		head := [8]byte{1}
		binary.BigEndian.PutUint32(head[4:], uint32(len(text)))
		b.Write(head[:])
		b.WriteString(text)
	}
	return io.NopCloser(&b), nil
}

// TestLogWhenTheClockIsPutBack restarts shims while the clock is set back and forth. No line may be lost or duplicated.
func TestLogWhenTheClockIsPutBack(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	engine := &keptLog{}
	path := filepath.Join(t.TempDir(), "0.log")
	for _, step := range []time.Duration{0, -time.Hour, time.Second, 2 * time.Hour, -24 * time.Hour, -time.Minute, 48 * time.Hour} {
		now = now.Add(step)
		for range 50 {
			now = now.Add(100 * time.Millisecond)
			engine.stamps = append(engine.stamps, now)
		}
		for range 2 { // the second run has nothing to do
			f, err := newFollower("id", logdir.Place{Path: path}, engine, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			f.now = func() time.Time { return now }
			f.run(t.Context())
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for i, at := range engine.stamps {
			fmt.Fprintf(&want, "%s stdout F line %d\n", at.Format(stampLayout), i)
		}
		if string(text) != want.String() {
			t.Fatalf("after a step of %s the log has %d lines, want %d", step, bytes.Count(text, []byte("\n")), len(engine.stamps))
		}
	}
	// The same follower reads again.
	f, err := newFollower("id", logdir.Place{Path: path}, engine, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.now = func() time.Time { return now }
	for _, step := range []time.Duration{0, -time.Hour, time.Second, -time.Hour} {
		now = now.Add(step)
		for range 50 {
			now = now.Add(100 * time.Millisecond)
			engine.stamps = append(engine.stamps, now)
		}
		if err := f.copy(t.Context(), ofDriver("json-file", false), false); err != nil {
			t.Fatal(err)
		}
	}
	f.close()
	text, err := os.ReadFile(path)
	if n := bytes.Count(text, []byte("\n")); err != nil || n != len(engine.stamps) {
		t.Errorf("got %d lines, %v, want %d", n, err, len(engine.stamps))
	}
}

// brokenOff is an engine whose first response breaks off.
type brokenOff struct {
	keptLog
	asked int
}

func (b *brokenOff) ContainerLogs(ctx context.Context, id string, o container.LogsOptions) (io.ReadCloser, error) {
	r, err := b.keptLog.ContainerLogs(ctx, id, o)
	if b.asked++; b.asked > 1 || err != nil {
		return r, err
	}
	some := io.LimitReader(r, 150) // two records and a part of the next
	return io.NopCloser(io.MultiReader(some, iotest.ErrReader(io.ErrUnexpectedEOF))), nil
}

// TestLogWhenTheEngineBreaksOff checks that a broken response is not the end of an ended container's log.
func TestLogWhenTheEngineBreaksOff(t *testing.T) {
	engine := &brokenOff{}
	for i := range 10 {
		engine.stamps = append(engine.stamps, time.Date(2026, 3, 1, 12, 0, i, 0, time.UTC))
	}
	path := filepath.Join(t.TempDir(), "0.log")
	f, err := newFollower("id", logdir.Place{Path: path}, engine, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	f.run(t.Context())
	if got := texts(t, path); len(got) != 10 || engine.asked < 2 {
		t.Errorf("got %q after %d answers, want 10 lines", got, engine.asked)
	}
	engine.asked = 0
	if err := Read(t.Context(), engine, "id", ReadOptions{Tail: -1}, func(Record) error { return nil }); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a reader: got %v, want to be told", err)
	}
}
