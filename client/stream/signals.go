package stream

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

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
