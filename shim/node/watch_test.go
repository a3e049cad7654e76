package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/events"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/enginetest"
)

// watched is an in-memory engine whose subscribers can be awaited.
type watched struct{ *enginetest.Memory }

type safeLog struct{ test.Buffer }

func (l *safeLog) waitFor(t *testing.T, text string) string {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if got := l.String(); strings.Contains(got, text) {
			return got
		}
	}
	t.Fatalf("the log never had %q", text)
	return ""
}

func newWatch(engine watched, log *slog.Logger) *Watch {
	follow := func(ctx context.Context) error {
		messages, errs := engine.Events(ctx, events.ListOptions{})
		for {
			select {
			case <-messages:
			case err := <-errs:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	}
	return &Watch{Node: newTest(engine), Engine: engine, Follow: follow, Check: func(context.Context) {}, Log: log}
}

func TestWatchFollowsAnEngineThatComesAndGoes(t *testing.T) {
	t.Parallel()
	engine, log := watched{enginetest.NewMemory()}, &safeLog{}
	engine.Fail("Ping", func(context.Context) error { return errors.New("no engine yet") })
	w := newWatch(engine, slog.New(slog.NewTextHandler(log, nil)))
	w.pause = time.Millisecond
	if err := w.Start(t.Context()); err != nil {
		t.Fatalf("an engine that is away: got %v", err)
	}
	defer w.Stop()
	log.waitFor(t, "no engine yet")
	engine.Fail("Ping", nil)
	log.waitFor(t, "the engine is ready")
	engine.waitForListener(t)
	engine.BreakEvents(errors.New("restarted"))
	got := log.waitFor(t, "the engine is gone")
	if n := strings.Count(got, "no engine yet"); n != 1 {
		t.Errorf("got the same attempt logged %d times:\n%s", n, got)
	}
}

func (w watched) waitForListener(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if w.Listeners() > 0 {
			return
		}
	}
	t.Fatal("nobody listens to the engine")
}

func TestWatchRefusesAnEngineThatDoesNotFit(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		driver string
		ping   enginetest.Fault
		want   string
	}{
		"another cgroup driver": {"systemd", nil, `native.cgroupdriver=systemd`},
		"an old engine": {"", func(context.Context) error {
			return fmt.Errorf("too old: %w", errdefs.ErrFailedPrecondition)
		}, "too old"},
	} {
		engine := watched{enginetest.NewMemory()}
		engine.Fail("Ping", c.ping)
		w := newWatch(engine, slog.New(slog.DiscardHandler))
		w.Node.CgroupDriver = c.driver
		err := w.Start(t.Context())
		if !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %q in it", name, err, c.want)
		}
		w.Stop()
	}
}

// The engine's processes are moved periodically, because the engine starts new ones. The same error is logged once.
func TestTheEnginesProcessesAreKept(t *testing.T) {
	t.Parallel()
	engine, log := watched{enginetest.NewMemory()}, &safeLog{}
	w := newWatch(engine, slog.New(slog.NewTextHandler(log, nil)))
	times := make(chan int)
	n := 0
	w.keepInterval = time.Millisecond
	w.Keep = func() error {
		n++
		times <- n
		if n < 3 {
			return errors.New("read-only cgroups")
		}
		return nil
	}
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for want := range 4 {
		select {
		case got := <-times:
			if got != want+1 {
				t.Errorf("got %d, want %d", got, want+1)
			}
		case <-time.After(time.Minute):
			t.Fatalf("it was done %d times, and not again", want)
		}
	}
	go func() {
		for range times { // until the watch has ended
		}
	}()
	w.Stop()
	close(times)
	if got := strings.Count(log.waitFor(t, "read-only cgroups"), "read-only cgroups"); got != 1 {
		t.Errorf("it was logged %d times", got)
	}
}
