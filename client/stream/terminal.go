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
	"time"

	"github.com/moby/term"
	"golang.org/x/sys/unix"
)

// terminal is the user's, for as long as a session owns it. A nil terminal is
// a session without one.
type terminal struct {
	fd     uintptr
	typing bool      // it is the input, too
	size   []uintptr // where to ask for the size

	mu    sync.Mutex
	saved *term.State // set while in raw mode
	ended bool        // the session is over: a late SIGCONT changes nothing
}

// newTerminal is nil unless the session has a TTY and its input or output is a terminal.
func newTerminal(s Streams) *terminal {
	fds := terminals(s)
	if !s.TTY || len(fds) == 0 {
		return nil
	}
	if fd, ok := term.GetFdInfo(s.In); ok {
		return &terminal{fd: fd, typing: true, size: fds}
	}
	return &terminal{fd: fds[0], size: fds}
}

// terminals returns the session's streams that know a window size. A session whose
// input is a pipe may still show its output on a terminal.
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

// windowSize is zero when no stream knows one.
func windowSize(s Streams) size {
	if !s.TTY {
		return size{}
	}
	return sizeOf(terminals(s))
}

func sizeOf(fds []uintptr) size {
	for _, fd := range fds {
		if w, err := term.GetWinsize(fd); err == nil && w.Width > 0 && w.Height > 0 {
			return size{Width: w.Width, Height: w.Height}
		}
	}
	return size{}
}

// raw hands every key to the remote side, and all of its output to the screen: its lines end as on
// a terminal already. Doing it again, as after a stop by the shell, keeps the state that was found first.
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

// rawOutput has a terminal show output as it comes. Keys stay the terminal's, so that ^C is a signal. It
// leaves the terminal of a job in the background alone, which would be stopped.
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

// restore gives the terminal back as it was found.
func (t *terminal) restore() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.saved != nil {
		_ = term.RestoreTerminal(t.fd, t.saved) // a terminal that is gone needs nothing
		t.saved = nil
	}
}

// end gives the terminal back for good.
func (t *terminal) end() {
	if t == nil {
		return
	}
	t.mu.Lock()
	t.ended = true
	t.mu.Unlock()
	t.restore()
}

// guard is deferred in every goroutine of a session: a panic must not leave
// the user with a terminal that does not echo.
func (t *terminal) guard() {
	if p := recover(); p != nil {
		t.restore()
		panic(p)
	}
}

// signalGrace is how long a cancelled session waits for the signal that may
// have cancelled it.
const signalGrace = 50 * time.Millisecond

// signals turns what the process receives into what a session does.
type signals struct {
	all   chan os.Signal
	ended chan *SignalError // the first signal that ends the session
	done  chan struct{}
}

// watchSignals starts listening. SIGPIPE is among them so that a closed pipe
// on stdout is a write error and not the end of the process, which still has a
// terminal to restore and a remote command to end.
func watchSignals(tty bool) *signals {
	s := &signals{
		all:   make(chan os.Signal, 16),
		ended: make(chan *SignalError, 1),
		done:  make(chan struct{}),
	}
	list := []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE}
	if tty {
		list = append(list, syscall.SIGWINCH, syscall.SIGTSTP, syscall.SIGCONT)
	}
	signal.Notify(s.all, list...)
	return s
}

// owner is what a session does about signals.
type owner interface {
	resized()
	stopping()
	resumed()
}

// run handles signals until stop.
func (s *signals) run(end func(error), o owner) {
	for {
		select {
		case <-s.done:
			return
		case sig := <-s.all:
			s.handle(sig, end, o)
		}
	}
}

func (s *signals) handle(sig os.Signal, end func(error), o owner) {
	switch sig {
	case syscall.SIGPIPE:
	case syscall.SIGWINCH:
		o.resized()
	case syscall.SIGTSTP:
		o.stopping()
		// The whole process stops, but this thread may get a little further
		// first: what follows a pause is left to SIGCONT.
		_ = syscall.Kill(syscall.Getpid(), syscall.SIGSTOP)
	case syscall.SIGCONT:
		o.resumed()
	default:
		err := &SignalError{Signal: sig.(syscall.Signal)}
		select {
		case s.ended <- err:
		default:
		}
		end(err)
	}
}

// cause explains an error by the signal behind it. The caller's context may be
// cancelled by the same signal a moment before it gets here.
func (s *signals) cause(ctx context.Context, err error) error {
	var exit *ExitError
	if err == nil || ctx.Err() == nil || errors.As(err, &exit) || errors.Is(err, ErrDetached) {
		return err
	}
	select {
	case sig := <-s.ended:
		return sig
	case <-time.After(signalGrace):
		return context.Cause(ctx)
	}
}

func (s *signals) stop() {
	signal.Stop(s.all)
	close(s.done)
}
