package stream

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

const (
	statusLimit = 1 << 20
	// drainIdle is how long after the status a server may stay silent with
	// an output still open. It closes them itself; this is for those that
	// do not.
	drainIdle = 10 * time.Second
)

// Exec runs the command behind an Exec URL. It returns nil when the command
// succeeded, an ExitError with its status, a SignalError when a signal to this
// process ended the session, ErrDetached, or why it could not run.
func Exec(ctx context.Context, url string, s Streams, o Options) error {
	return run(ctx, url, s, o)
}

// Attach connects to the container behind an Attach URL. It returns nil when
// the container ended; its status is the runtime's to tell.
func Attach(ctx context.Context, url string, s Streams, o Options) error {
	return run(ctx, url, s, o)
}

// session is one connected command.
type session struct {
	Streams
	o    Options
	term *terminal
	ch   atomic.Pointer[channels] // nil until connected

	copying sync.WaitGroup // output
	moved   atomic.Int64   // when output last arrived, in nanoseconds since loaded
	writing atomic.Int32   // outputs that wait for their local reader
}

func run(ctx context.Context, url string, s Streams, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	if s.TTY {
		s.Err = nil
	}
	x := &session{Streams: s, o: o, term: newTerminal(s)}
	sig := watchSignals(x.term != nil)
	defer sig.stop()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	go sig.run(end, x)

	ch, err := openChannels(ctx, url, s, windowSize(s), o)
	if err != nil {
		return sig.cause(ctx, err)
	}
	x.ch.Store(ch)
	if err := x.term.raw(); err != nil {
		ch.close()
		return err
	}
	defer x.term.end()
	defer x.term.guard()
	x.resized() // it may have changed while we dialled
	if o.Connected != nil {
		o.Connected()
	}
	return sig.cause(ctx, x.transfer(ctx, ch))
}

// transfer moves bytes until one side ends the session, and leaves no
// goroutine behind that it can end.
func (x *session) transfer(ctx context.Context, ch *channels) error {
	in, typed := x.startInput(ch)
	out := x.startOutput(ch)
	status := make(chan error, 1)
	go func() {
		raw, _ := io.ReadAll(io.LimitReader(ch.status, statusLimit)) // a cut status is an unknown one
		status <- parseStatus(raw)
	}()
	err := x.decide(ctx, typed, out, status)
	x.term.end()
	ch.close()
	if in != nil {
		in.stop()
		if in.pollable() {
			for range typed { // until it has ended
			}
			in.release()
		}
	}
	x.settle(out)
	return err
}

// decide waits for the first thing that ends the session.
func (x *session) decide(ctx context.Context, typed <-chan error, out <-chan error, status <-chan error) error {
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

// detach tells the runtime to keep the process, where there is a way to.
func (x *session) detach(ctx context.Context) error {
	if x.o.OnDetach != nil {
		if err := x.o.OnDetach(ctx); err != nil {
			return errors.Join(ErrDetached, err)
		}
	}
	return ErrDetached
}

// resized sends the terminal's size, if there is one.
func (x *session) resized() {
	if ch := x.ch.Load(); ch != nil {
		_ = ch.setSize(windowSize(x.Streams)) // a broken connection shows elsewhere
	}
}

// stopping gives the terminal back before the process stops.
func (x *session) stopping() { x.term.restore() }

// resumed takes the terminal again; the shell has put it into its own mode,
// and the window may have changed in the meantime.
func (x *session) resumed() {
	if x.ch.Load() == nil {
		return
	}
	if err := x.term.raw(); err != nil {
		x.o.warn("%v", err)
	}
	x.resized()
}
