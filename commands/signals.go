package commands

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

// sameSignal is how soon a second signal is still the first: timeout(1), for
// one, sends each to the process and to its group.
const sameSignal = 300 * time.Millisecond

// signalWatch turns the first SIGINT, SIGTERM or SIGHUP into a cancelled
// context and the second into the process's end.
type signalWatch struct {
	first atomic.Int32
	stop  func()
}

func watchSignals(ctx context.Context, exit func(int)) (context.Context, *signalWatch) {
	ctx, cancel := context.WithCancel(ctx)
	incoming := make(chan os.Signal, 2)
	signal.Notify(incoming, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	watch := &signalWatch{}
	watch.stop = func() {
		signal.Stop(incoming)
		close(done)
		cancel()
	}
	go watch.run(incoming, done, cancel, exit)
	return ctx, watch
}

func (w *signalWatch) run(incoming <-chan os.Signal, done <-chan struct{}, cancel func(), exit func(int)) {
	var since time.Time
	for {
		select {
		case <-done:
			return
		case s := <-incoming:
			number, ok := s.(syscall.Signal)
			if !ok {
				continue
			}
			if !w.first.CompareAndSwap(0, int32(number)) {
				if exit != nil && time.Since(since) > sameSignal {
					exit(128 + int(number))
				}
				continue
			}
			since = time.Now()
			cancel()
		}
	}
}

// errFollowed is how a verb ends that goes on until somebody ends it.
var errFollowed = errors.New("interrupted")

// caught is the signal that came first, 0 if none did.
func (w *signalWatch) caught() int { return int(w.first.Load()) }
