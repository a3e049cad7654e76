package spdyframe

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// gatherFor is how long a sender of much is left alone between two reads. A
	// socket takes some 200 KiB before its writer has to wait; an engine fills
	// that in about half a millisecond.
	gatherFor = 300 * time.Microsecond
	// soon is how close together large reads are that make a stream of them.
	soon = 2 * time.Millisecond
	// gatherers is how many streams may wait at once: each holds a thread, because
	// the runtime's own timers are too coarse, a millisecond, when nothing else runs.
	gatherers = 4
)

var gathering atomic.Int32

// Pace makes a reader of a fast stream come back a little later, when there is
// more to take. To wake a reader and its writer costs more than to copy what one
// of the engine's records holds, and here that is paid in three processes. What
// comes in small pieces, or seldom, is not delayed.
type Pace struct{ last time.Time }

// Wait comes after a read of n bytes has been passed on.
func (p *Pace) Wait(n int) {
	if n < smallest {
		return
	}
	now := time.Now()
	if now.Sub(p.last) < soon {
		if gathering.Add(1) <= gatherers {
			pause := unix.NsecToTimespec(int64(gatherFor))
			_ = unix.Nanosleep(&pause, nil) // a signal may cut it short
			now = time.Now()
		}
		gathering.Add(-1)
	}
	p.last = now
}
