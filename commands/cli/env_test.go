package cli

import (
	"runtime"
	"runtime/debug"
	"testing"
	"time"
)

// The first collection restores the usual pace.
func TestGarbageIsCollectedAsUsualAfterTheFirstTime(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	before := debug.SetGCPercent(longLivedGC)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	pace := func() int {
		now := debug.SetGCPercent(longLivedGC)
		debug.SetGCPercent(now)
		return now
	}
	postponeGC()
	if got := pace(); got != shortLivedGC {
		t.Fatalf("at the start the percentage is %d, want %d", got, shortLivedGC)
	}
	for deadline := time.Now().Add(time.Minute); pace() != longLivedGC; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("a collection changed nothing")
		}
		runtime.GC()
	}
	t.Setenv("GOGC", "50")
	if postponeGC(); pace() != longLivedGC {
		t.Error("GOGC is set, and not obeyed")
	}
}
