package cli

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/crishim/crishim/client/stream"
)

// sameSignal is the time in which a second signal counts as the first: timeout(1) signals both the process and its
// group.
const sameSignal = 300 * time.Millisecond

// signalWatch cancels the context at the first SIGINT, SIGTERM or SIGHUP, with the signal as the cause. It ends the
// process at the second.
type signalWatch struct {
	incoming chan os.Signal
	first    atomic.Int32 // the first signal, 0 before it
	stop     func()
}

// received returns the first signal, or 0.
func (w *signalWatch) received() syscall.Signal { return syscall.Signal(w.first.Load()) }

func watchSignals(ctx context.Context, exit func(int)) (context.Context, *signalWatch) {
	ctx, cancel := context.WithCancelCause(ctx)
	incoming := make(chan os.Signal, 2)
	signal.Notify(incoming, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	watch := &signalWatch{incoming: incoming}
	watch.stop = func() {
		signal.Stop(incoming)
		close(done)
		cancel(nil)
	}
	go func() {
		var since time.Time
		for {
			select {
			case <-done:
				return
			case s := <-incoming:
				number, ok := s.(syscall.Signal)
				switch {
				case !ok:
				case watch.first.CompareAndSwap(0, int32(number)):
					since = time.Now()
					cancel(stream.Signaled(number))
				case exit != nil && time.Since(since) > sameSignal:
					exit(exitSignals + int(number))
				}
			}
		}
	}()
	return ctx, watch
}
