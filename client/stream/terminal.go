package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/moby/term"
	"golang.org/x/sys/unix"
)

// terminal is the user's terminal during a session. It is nil without a terminal.
type terminal struct {
	fd     uintptr
	typing bool // the terminal is also the input

	mu    sync.Mutex
	saved *term.State // set while in raw mode
	ended bool        // the session is over: ignore a late SIGCONT
}

func newTerminal(s Streams) *terminal {
	fds := terminals(s)
	if !s.TTY || len(fds) == 0 {
		return nil
	}
	if fd, ok := term.GetFdInfo(s.In); ok {
		return &terminal{fd: fd, typing: true}
	}
	return &terminal{fd: fds[0]}
}

// terminals returns the session's streams that have a window size. A session with piped input may still have its output
// on a terminal.
func terminals(s Streams) []uintptr {
	var fds []uintptr
	for _, v := range []any{s.Out, s.In} {
		if around, ok := v.(interface{ Unwrap() io.Writer }); ok {
			v = around.Unwrap()
		}
		if f, ok := v.(*os.File); ok && f != nil {
			if fd, tty := term.GetFdInfo(f); tty {
				fds = append(fds, fd)
			}
		}
	}
	return fds
}

// WindowSize returns the size of the streams' terminal, or zero if no stream is a terminal.
func WindowSize(s Streams) Size {
	if !s.TTY {
		return Size{}
	}
	for _, fd := range terminals(s) {
		if w, err := term.GetWinsize(fd); err == nil && w.Width > 0 && w.Height > 0 {
			return Size{Width: w.Width, Height: w.Height}
		}
	}
	return Size{}
}

// raw passes each key to the remote side and its output unchanged to the screen, because the remote terminal already
// converts line ends. A second call, after the shell stopped the session, keeps the originally saved state.
func (t *terminal) raw() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return nil
	}
	set := rawOutput
	if t.typing {
		set = term.SetRawTerminal
	}
	state, err := set(t.fd)
	if err != nil {
		return fmt.Errorf("set terminal to raw mode: %w", err)
	}
	if t.saved == nil {
		t.saved = state
	}
	return nil
}

// rawOutput sets only the output to raw mode. Keys are still processed locally, so ^C is a signal. In the background
// rawOutput does nothing, because the kernel stops a background process that changes its terminal.
func rawOutput(fd uintptr) (*term.State, error) {
	if group, err := unix.IoctlGetInt(int(fd), unix.TIOCGPGRP); err == nil && group != unix.Getpgrp() {
		return nil, nil
	}
	state, err := term.SaveState(fd)
	if err != nil {
		return nil, err
	}
	modes, err := unix.IoctlGetTermios(int(fd), unix.TCGETS)
	if err != nil {
		return nil, err
	}
	modes.Oflag &^= unix.OPOST
	return state, unix.IoctlSetTermios(int(fd), unix.TCSETS, modes)
}

func (t *terminal) restore() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		_ = term.RestoreTerminal(t.fd, t.saved) // fails if the terminal has gone
		t.saved = nil
	}
}

func (t *terminal) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.restore()
}

// guard is deferred in Run and in the goroutines that copy input and output. It restores the terminal on a panic;
// otherwise the user's shell would not echo.
func (t *terminal) guard() {
	if p := recover(); p != nil {
		t.restore()
		panic(p)
	}
}

// watchSignals handles the signals of a session until stop is called. It also receives SIGPIPE, so that a write to a
// closed stdout returns an error. By default SIGPIPE kills the process before it restores the terminal and ends the
// remote command. Signals that end the whole program cancel its context instead: see Signaled.
func (x *session) watchSignals(end context.CancelCauseFunc) (stop func()) {
	received, done := make(chan os.Signal, 16), make(chan struct{})
	signal.Notify(received, syscall.SIGQUIT, syscall.SIGPIPE)
	if x.term != nil {
		signal.Notify(received, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	}
	go func() {
		for {
			select {
			case <-done:
				return
			case s := <-received:
				x.handle(s, end)
			}
		}
	}()
	return func() {
		signal.Stop(received)
		close(done)
	}
}

func (x *session) handle(s os.Signal, end context.CancelCauseFunc) {
	switch s {
	case syscall.SIGWINCH:
		x.resized()
	case syscall.SIGTSTP:
		x.term.restore()
		// SIGSTOP may take effect only after Kill returns, so raw mode is set again on SIGCONT, not here.
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	case syscall.SIGCONT:
		x.resumed()
	case syscall.SIGQUIT:
		end(Signaled(syscall.SIGQUIT))
	}
}

// Signaled is the cause of a context that a signal has cancelled. It matches [context.Canceled].
type Signaled syscall.Signal

func (s Signaled) Error() string { return context.Canceled.Error() }

func (s Signaled) Is(err error) bool { return err == context.Canceled } //nolint:errorlint // an Is method compares directly

// orSignal returns a SignalError if a signal cancelled ctx before the command ended, and the cause of ctx if ctx ended for
// another reason. Otherwise it returns err.
func orSignal(ctx context.Context, err error) error {
	if err == nil || ctx.Err() == nil || errors.As(err, new(*ExitError)) || errors.Is(err, ErrDetached) {
		return err
	}
	if s, ok := errors.AsType[Signaled](context.Cause(ctx)); ok {
		return &SignalError{Signal: syscall.Signal(s)}
	}
	return context.Cause(ctx)
}
