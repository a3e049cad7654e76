package stream

import (
	"context"
	"errors"
	"io"
	"syscall"
	"time"

	"github.com/crishim/crishim/internal/enginestream"
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
	buf := make([]byte, readSize)
	for {
		n, err := in.Read(buf)
		typed := buf[:n]
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

// startOutput copies stdout and stderr. The returned channel carries errors of the
// local writers, and is closed when both have ended.
func (x *session) startOutput(ch *channels) chan error {
	end := make(chan error, 2)
	x.moved.Store(int64(time.Since(loaded)))
	local := func(w io.Writer) io.Writer {
		if w == nil {
			return nil
		}
		return &localOutput{session: x, to: w, failed: end}
	}
	stdout, stderr := local(x.Out), local(x.Err)
	for _, c := range []struct {
		from io.Reader
		to   io.Writer
	}{{ch.stdout, stdout}, {ch.stderr, stderr}} {
		if c.from == nil || c.to == nil {
			continue
		}
		x.copying.Go(func() {
			defer x.term.guard()
			_ = enginestream.Copy(c.to, c.from) // the writer tells of its failure, the status of the remote side's
		})
	}
	go func() {
		x.copying.Wait()
		close(end)
	}()
	return end
}

// localOutput is a local writer of a session. Its first error is what the session
// ends with. A reader that went away, as head does, is reported the way a shell
// would: ended by SIGPIPE.
type localOutput struct {
	session *session
	to      io.Writer
	failed  chan<- error // with room for one error of each output
	told    bool
}

// Write implements io.Writer. It is not called at the same time as another.
func (o *localOutput) Write(p []byte) (int, error) {
	o.session.writing.Add(1)
	n, err := o.to.Write(p)
	o.session.writing.Add(-1)
	o.session.moved.Store(int64(time.Since(loaded)))
	if err == nil || o.told {
		return n, err
	}
	o.told = true
	if errors.Is(err, syscall.EPIPE) {
		err = &SignalError{Signal: syscall.SIGPIPE}
	}
	o.failed <- err
	return n, err
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
