package kuberuntime

import (
	"testing"
	"time"
)

// TestWaitsWhenTheClockIsPutBack: a wait is never longer than it would be.
func TestWaitsWhenTheClockIsPutBack(t *testing.T) {
	t.Parallel()
	now := time.Unix(100_000, 0)
	b := newBackoff()
	b.next("k", now)
	if got := b.wait("k", now, now.Add(-time.Hour)); got != backoffInitial {
		t.Errorf("back-off: got %s, want %s", got, backoffInitial)
	}
	if got := b.wait("k", now, now.Add(time.Hour)); got != 0 {
		t.Errorf("back-off when the clock was put forward: got %s", got)
	}
	r := newRate(1, 1, func() time.Time { return now })
	if !r.allow() || r.allow() {
		t.Error("the rate lets through too much, or nothing")
	}
	now = now.Add(-time.Hour)
	if r.allow() {
		t.Error("the rate lets something through when the clock is put back")
	}
	now = now.Add(2 * time.Second)
	if !r.allow() {
		t.Error("the rate waits until the clock is where it was")
	}
	var v versionCache
	v.set("v1", now)
	if _, ok := v.get(now.Add(-time.Hour)); ok {
		t.Error("the version is kept until the clock is where it was")
	}
}
