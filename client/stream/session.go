// Package stream is the client side of CRI streaming URLs. It runs commands in containers, attaches to containers and
// forwards ports to pods.
//
// A runtime answers Exec, Attach and PortForward with a URL that is valid once. Run dials that URL over SPDY or
// WebSocket. Forward asks for a URL per tunnel and dials it over SPDY. Both return when the remote side or the context
// ends. Run also manages the terminal: raw mode, window size and detach keys.
//
// The package does not resolve names and does not set this program's exit code. A command's status is returned as an
// ExitError.
package stream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/muesli/cancelreader"

	"github.com/crishim/crishim/internal/frames"
)

const (
	statusLimit = 1 << 20
	// drainIdle is how long a server may be silent after the status while an output is still open.
	drainIdle = 10 * time.Second
)

type session struct {
	Streams
	o    Options
	term *terminal
	ch   atomic.Pointer[channels] // nil until connected

	copying sync.WaitGroup // copies of the outputs
	moved   atomic.Int64   // time of the last output, in nanoseconds since startTime
	writing atomic.Int32   // outputs that wait for their local reader
}

// Run connects streams with the command behind an Exec URL or the container behind an Attach URL. It returns nil if the
// command succeeded or the attached container ended; the container's status comes from the runtime. Otherwise it
// returns an ExitError with the command's status, a SignalError if a signal to this process ended the session,
// ErrDetached, or the reason for the failure.
func Run(ctx context.Context, url string, s Streams, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	if s.TTY {
		s.Err = nil
	}
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	x := &session{Streams: s, o: o, term: newTerminal(s)}
	defer x.watchSignals(end)()
	ch, err := openChannels(ctx, url, s, WindowSize(s), o)
	if err != nil {
		return orSignal(ctx, err)
	}
	x.ch.Store(ch)
	if err := x.term.raw(); err != nil {
		ch.close()
		return err
	}
	defer x.term.end()
	defer x.term.guard()
	x.resized() // the size may have changed during the dial
	if o.Connected != nil {
		o.Connected()
	}
	return orSignal(ctx, x.transfer(ctx, ch))
}

// transfer moves bytes until one side ends the session. It stops all goroutines except those blocked in local I/O.
func (x *session) transfer(ctx context.Context, ch *channels) error {
	in, typed := x.startInput(ch)
	out := x.startOutput(ch)
	status := make(chan error, 1)
	go func() {
		raw, _ := io.ReadAll(io.LimitReader(ch.status, statusLimit)) // a truncated status is parsed as unknown
		status <- parseStatus(raw)
	}()
	err := x.decide(ctx, typed, out, status)
	x.term.end()
	ch.close()
	if in != nil && in.Cancel() {
		for range typed { // wait for the input goroutine
		}
		_ = in.Close() // releases file descriptors only
	}
	x.waitForCopies(out)
	return err
}

func (x *session) decide(ctx context.Context, typed, out, status <-chan error) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case err, open := <-typed:
			if errors.Is(err, ErrDetached) {
				return x.detach(ctx)
			}
			if !open {
				typed = nil
			}
		case err, open := <-out:
			if err != nil {
				return err
			}
			if !open {
				out = nil
			}
		case err := <-status:
			if outErr := x.drain(ctx, out); outErr != nil {
				return outErr
			}
			return err
		}
	}
}

func (x *session) detach(ctx context.Context) error {
	if x.o.OnDetach != nil {
		if err := x.o.OnDetach(ctx); err != nil {
			return errors.Join(ErrDetached, err)
		}
	}
	return ErrDetached
}

func (x *session) resized() {
	if ch := x.ch.Load(); ch != nil {
		_ = ch.setSize(WindowSize(x.Streams)) // a broken connection also ends the status stream, which ends the session
	}
}

// resumed sets raw mode and window size again after a SIGCONT: the shell has set its own mode, and the window may have
// changed.
func (x *session) resumed() {
	if x.ch.Load() == nil {
		return
	}
	if err := x.term.raw(); err != nil {
		x.o.warn("%v", err)
	}
	x.resized()
}

// channels are the streams of one remote command over either transport.
type channels struct {
	stdin          io.WriteCloser // Close is a half-close
	stdout, stderr io.Reader      // nil if not requested
	status         io.Reader      // ends when the status is complete
	resize         io.Writer      // nil without a TTY
	close          func()         // closes the session in any state
}

func (c *channels) setSize(s Size) error {
	if c.resize == nil || s.Width == 0 || s.Height == 0 {
		return nil
	}
	if err := json.NewEncoder(c.resize).Encode(s); err != nil {
		return fmt.Errorf("send terminal size: %w", err)
	}
	return nil
}

// Size is a terminal size. The field names are those of the protocol.
type Size struct {
	Width, Height uint16
}

func openChannels(ctx context.Context, raw string, s Streams, first Size, o Options) (*channels, error) {
	u, err := completeURL(raw)
	if err != nil {
		return nil, err
	}
	if o.Transport == transportWebSocket {
		return openWebSocket(ctx, u, s, first, o)
	}
	ch, err := openSPDY(ctx, u, s, first, o)
	var refused *UpgradeError
	if o.Transport == transportSPDY || !errors.As(err, &refused) || refused.Code == http.StatusNotFound {
		return ch, err
	}
	again, urlErr := freshURL(ctx, u, o)
	if urlErr != nil {
		return nil, err
	}
	ch, wsErr := openWebSocket(ctx, again, s, first, o)
	if wsErr != nil {
		return nil, fmt.Errorf("neither SPDY nor WebSocket: %w; %w", err, wsErr)
	}
	return ch, nil
}

// freshURL returns a URL for another attempt. Without Options.FreshURL it reuses the old one, because a server may
// refuse an upgrade before it consumes the token.
func freshURL(ctx context.Context, used *url.URL, o Options) (*url.URL, error) {
	if o.FreshURL == nil {
		return used, nil
	}
	raw, err := o.FreshURL(ctx)
	if err != nil {
		return nil, err
	}
	return completeURL(raw)
}

// startTime is the reference for monotonic times, which are immune to changes of the system clock.
var startTime = time.Now()

// startInput sends typed or piped input. The channel receives ErrDetached after the detach keys and is closed when no
// more input will be sent. The reader is nil for a file that never blocks.
func (x *session) startInput(ch *channels) (cancelreader.CancelReader, chan error) {
	end := make(chan error, 1)
	if x.In == nil {
		close(end)
		return nil, end
	}
	from := x.In
	in, err := cancelreader.NewReader(x.In)
	if err != nil {
		in = nil
	} else {
		from = in
	}
	go func() {
		defer close(end)
		defer x.term.guard()
		if err := x.sendInput(from, ch.stdin); err != nil {
			end <- err
		}
	}()
	return in, end
}

// sendInput copies the input and forwards its end as a half-close. It returns nil if the remote side stops reading,
// because the command's status has the reason.
func (x *session) sendInput(in io.Reader, to io.WriteCloser) error {
	var keys detachScanner
	if x.TTY {
		keys.keys, _ = parseDetachKeys(x.o.DetachKeys) // validated by Check
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
			continue
		case errors.Is(err, cancelreader.ErrCanceled):
			return nil
		case !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EIO): // EIO: the other end of the terminal is closed
			x.o.warn("read input: %v", err)
		}
		_ = to.Close() // the remote side may have closed already
		return nil
	}
}

// startOutput copies stdout and stderr. The channel carries errors of the local writers and is closed when both outputs
// have ended.
func (x *session) startOutput(ch *channels) chan error {
	end := make(chan error, 2)
	x.moved.Store(int64(time.Since(startTime)))
	start := func(to io.Writer, from io.Reader) {
		if from == nil {
			return
		}
		x.copying.Go(func() {
			defer x.term.guard()
			// localOutput reports local errors; the exit status reports remote errors.
			_ = frames.Copy(&localOutput{session: x, to: to, failed: end}, from)
		})
	}
	start(x.Out, ch.stdout)
	start(x.Err, ch.stderr)
	go func() {
		x.copying.Wait()
		close(end)
	}()
	return end
}

// localOutput is a local writer of a session. Its first error ends the session. If the local reader has ended, as head
// does, the error is a SignalError for SIGPIPE, so that the exit status is the same as in a shell.
type localOutput struct {
	session  *session
	to       io.Writer
	failed   chan<- error // capacity for one error per output
	reported bool
}

func (o *localOutput) Write(p []byte) (int, error) {
	o.session.writing.Add(1)
	n, err := o.to.Write(p)
	o.session.writing.Add(-1)
	o.session.moved.Store(int64(time.Since(startTime)))
	if err == nil || o.reported {
		return n, err
	}
	o.reported = true
	if errors.Is(err, syscall.EPIPE) {
		err = &SignalError{Signal: syscall.SIGPIPE}
	}
	o.failed <- err
	return n, err
}

// drain waits for output that arrives after the status. It gives up when the server has been silent for drainIdle. A
// slow local reader does not count as silence.
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
			idle := time.Since(startTime) - time.Duration(x.moved.Load())
			if x.writing.Load() == 0 && idle > drainIdle {
				return nil
			}
		}
	}
}

// waitForCopies waits briefly for the copies of a closed connection, so that nothing is written to the caller's streams
// after Run. A copy that blocks on a full pipe is abandoned.
func (x *session) waitForCopies(out <-chan error) {
	timeout := time.NewTimer(closeTimeout)
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
