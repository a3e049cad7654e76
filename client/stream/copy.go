package stream

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/crishim/crishim/internal/spdyframe"
)

// loaded is what times that are compared are counted from: the machine's clock
// may be put forward or back meanwhile.
var loaded = time.Now()

// startInput sends what is typed or piped. The returned channel carries
// ErrDetached at most and is closed when nothing more is sent.
func (x *session) startInput(ch *channels) (*input, chan error) {
	end := make(chan error, 1)
	if x.In == nil || ch.stdin == nil {
		close(end)
		return nil, end
	}
	in := newInput(x.In)
	go func() {
		defer close(end)
		defer x.term.guard()
		if err := x.sendInput(in, ch.stdin); err != nil {
			end <- err
		}
	}()
	return in, end
}

// sendInput copies until the input ends, which is passed on as a half-close,
// or the remote side no longer takes it, which is no error: its status tells.
func (x *session) sendInput(in io.Reader, to io.WriteCloser) error {
	var keys detachScanner
	if x.TTY {
		keys.keys, _ = ParseDetachKeys(x.o.DetachKeys) // checked before
	}
	next, _ := spdyframe.Reader(in)
	for {
		typed, err := next()
		if len(typed) > 0 {
			send, detached := keys.scan(typed)
			if len(send) > 0 {
				if _, err := to.Write(send); err != nil {
					return nil
				}
			}
			if detached {
				return ErrDetached
			}
		}
		switch {
		case err == nil:
		case errors.Is(err, errInputStopped):
			return nil
		default:
			if !errors.Is(err, io.EOF) {
				x.o.warn("read input: %v", err)
			}
			_ = to.Close() // the remote side may be gone already
			return nil
		}
	}
}

// startOutput copies stdout and stderr. The returned channel carries the local
// writer's error at most, and is closed when both have ended.
func (x *session) startOutput(ch *channels) chan error {
	end := make(chan error, 2)
	x.moved.Store(int64(time.Since(loaded)))
	for _, c := range []struct {
		from io.Reader
		to   io.Writer
	}{{ch.stdout, x.Out}, {ch.stderr, x.Err}} {
		if c.from == nil || c.to == nil {
			continue
		}
		x.copying.Go(func() {
			defer x.term.guard()
			if err := x.copyOutput(c.to, c.from); err != nil {
				end <- err
			}
		})
	}
	go func() {
		x.copying.Wait()
		close(end)
	}()
	return end
}

// copyOutput returns only errors of the local writer. The remote side's end
// is told by the status. A reader that went away, as head does, is reported
// the way a shell would: ended by SIGPIPE.
func (x *session) copyOutput(to io.Writer, from io.Reader) error {
	next, _ := spdyframe.Reader(from)
	for {
		p, err := next()
		if len(p) > 0 {
			x.writing.Add(1)
			_, werr := to.Write(p)
			x.writing.Add(-1)
			x.moved.Store(int64(time.Since(loaded)))
			if errors.Is(werr, syscall.EPIPE) {
				return &SignalError{Signal: syscall.SIGPIPE}
			}
			if werr != nil {
				return werr
			}
		}
		if err != nil {
			return nil
		}
	}
}

// drain waits for output that is still on its way after the status. Nothing is
// lost to a slow local reader; only a server that stays silent without closing
// is left.
func (x *session) drain(ctx context.Context, out <-chan error) error {
	if out == nil {
		return nil
	}
	tick := time.NewTicker(drainIdle / 10)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err := <-out:
			return err
		case <-tick.C:
			idle := time.Since(loaded) - time.Duration(x.moved.Load())
			if x.writing.Load() == 0 && idle > drainIdle {
				return nil
			}
		}
	}
}

// settle gives the copies of a closed connection a moment to end, so that
// nobody writes to the caller's streams afterwards. One that hangs in a write
// to a full pipe is left behind.
func (x *session) settle(out <-chan error) {
	timeout := time.NewTimer(goodbyeTimeout)
	defer timeout.Stop()
	for {
		select {
		case _, open := <-out:
			if !open {
				return
			}
		case <-timeout.C:
			return
		}
	}
}
