package commands

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/shim/host/proctree"
)

// Runtimes other than our shim leave the process of an exec running when its
// client goes away, and CRI has no call to end it. Where the container is on
// this machine and crishim is root, it finds the process by itself.

const (
	execLate   = 3 * time.Second       // for a process to appear whose session has ended already
	execAgain  = 50 * time.Millisecond // between two looks for it
	execEnding = 15 * time.Second      // for the process to be ended
)

// execLooks are the pauses before each look while a session goes on. A look reads
// the list of all processes, so a command that ends soon is not looked for, and one
// that lasts a few times only: while its command line is still its own, and for
// another one that would make it uncertain.
var execLooks = []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, 7 * time.Second}

// leftRunning is about a command that outlives its client.
const leftRunning = "the command may still run: this runtime does not end it, and crishim cannot tell its process from here"

// execWatch knows the process of an exec by what is seen in the kernel's list:
// that it came into the container from outside, when, and its command line.
type execWatch struct {
	container string
	command   []string
	since     uint64

	stop context.CancelFunc
	done chan struct{}
	seen []execSeen // read when done is closed
}

// execSeen is a process that came into the container while ours was started.
type execSeen struct {
	proctree.Process
	ours bool // it had our command line
}

// watchExec begins to look for a process that is about to be started. It is nil
// where that is for nothing.
func watchExec(conn *client.Conn, container string, command []string) *execWatch {
	since, err := proctree.Now()
	if err != nil || conn.Embedded || os.Geteuid() != 0 || !strings.HasPrefix(conn.RuntimeEndpoint, "unix:") {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &execWatch{container: container, command: command, since: since, stop: cancel, done: make(chan struct{})}
	go w.look(ctx)
	return w
}

func (w *execWatch) look(ctx context.Context) {
	defer close(w.done)
	for _, pause := range execLooks {
		select {
		case <-time.After(pause):
			w.once()
		case <-ctx.Done():
			return
		}
	}
}

// lookNow looks when the session has ended, as whoever came since the last look
// makes it uncertain. The process may even have been about to start.
func (w *execWatch) lookNow() {
	w.stop()
	<-w.done
	for end := time.Now().Add(execLate); ; time.Sleep(execAgain) {
		w.once()
		if _, found := w.process(); found || time.Now().After(end) {
			return
		}
	}
}

// once takes down who has come.
func (w *execWatch) once() {
	entered, err := proctree.Entered(w.container, w.since)
	if err != nil {
		return
	}
	for _, p := range entered {
		i := slices.IndexFunc(w.seen, func(s execSeen) bool { return s.Process == p })
		if i < 0 {
			i = len(w.seen)
			w.seen = append(w.seen, execSeen{Process: p})
		}
		w.seen[i].ours = w.seen[i].ours || slices.Equal(p.Args(), w.command)
	}
}

// process is the one process with our command line; where nobody was seen with
// it, the only process that has come and not gone.
func (w *execWatch) process() (proctree.Process, bool) {
	var alike, alive []proctree.Process
	for _, s := range w.seen {
		if s.ours {
			alike = append(alike, s.Process)
		}
		if s.Alive() {
			alive = append(alive, s.Process)
		}
	}
	switch {
	case len(alike) == 1:
		return alike[0], true
	case len(alike) == 0 && len(alive) == 1:
		return alive[0], true
	}
	return proctree.Process{}, false
}

// settle ends the process of a session that ended before it did, and all that
// it started. It says whether the process may be left, because the runtime does
// not end it and it could not be told.
func (w *execWatch) settle(ctx context.Context, conn *client.Conn, err error) (left bool) {
	if w != nil {
		defer func() { w.stop(); <-w.done }()
	}
	if conn.Embedded || !abandoned(ctx, err) {
		return false
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), execEnding)
	defer cancel()
	if conn.HasPrivate(ctx) {
		return false
	}
	if w == nil {
		return true
	}
	w.lookNow()
	process, found := w.process()
	return !found || proctree.Kill(ctx, process, w.container) != nil
}

// abandoned says that a session has ended while its process goes on.
func abandoned(ctx context.Context, err error) bool {
	var signal *stream.SignalError
	var status *stream.ExitError
	if err == nil || errors.As(err, &status) {
		return false
	}
	return ctx.Err() != nil || errors.As(err, &signal) || errors.Is(err, stream.ErrDetached)
}
