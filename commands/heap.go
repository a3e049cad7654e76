package commands

import (
	"os"
	"runtime"
	"runtime/debug"
)

// postponeGC puts off the first garbage collection until the heap has 32 MiB.
// Most commands end long before, and a collection in a process that lives for
// 20 ms is a tenth of its work. The first that does come restores the usual
// pace, so what stays (a followed log, a forwarded port) is not larger for it.
func postponeGC() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return // somebody knows better
	}
	debug.SetGCPercent(shortLivedGC)
	runtime.AddCleanup(new([32]byte), usualGC, struct{}{})
}

const (
	// The least heap at which a collection starts is 4 MiB times this, per cent.
	shortLivedGC = 800
	longLivedGC  = 100
)

// usualGC is for commands that stay.
func usualGC(struct{}) { debug.SetGCPercent(longLivedGC) }
