package container

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"syscall"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/logfile"
)

// foreground writes the container's output until it ends and returns its status. With a terminal and input it attaches.
// Otherwise it follows the log, which also has output from the time before a client could connect.
func (r *runner) foreground(ctx context.Context) error {
	path, err := logPath(ctx, r.conn, &runtimeapi.Container{Id: r.containerID, State: runtimeapi.ContainerState_CONTAINER_RUNNING})
	if file, openErr := logfile.Open(path); err != nil || openErr != nil {
		path = "" // the file cannot be read, so follow reads the engine's log
	} else {
		file.Close()
	}
	if r.session.TTY && r.session.Stdin {
		return r.attached(ctx, path)
	}
	feeding, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.session.Stdin {
		go func() { // an error does not fail the run: the command may not read its input
			if err := r.session.Attach(feeding, r.conn, r.containerID, stream.Streams{In: r.session.Input, TTY: r.session.TTY}); err != nil {
				r.Debugf("stdin: %v", err)
			}
		}()
	}
	err = r.follow(ctx, path)
	if errors.Is(err, client.ErrNotDockershim) {
		cancel() // attached opens its own session for the input
		return r.attached(ctx, path)
	}
	if err != nil {
		return err
	}
	return cli.WaitExitStatus(ctx, r.Printer, r.conn, r.containerID)
}

// attached attaches all streams. If the session brings no output, for example because the container has already ended, it
// copies the log.
func (r *runner) attached(ctx context.Context, path string) error {
	streams := r.session.Streams(r.Printer)
	early := &earlyOutput{out: streams.Out, dialled: time.Now(), shown: path == "", raw: streams.TTY, log: func(emit func(logfile.Entry) error) error {
		return logfile.Read(ctx, path, logfile.Options{Tail: -1}, emit)
	}}
	streams.Out = early
	if r.session.TTY {
		r.session.Options.Connected = early.connected
	}
	err := r.session.Attach(ctx, r.conn, r.containerID, streams)
	shown := early.finish()
	if errors.Is(err, stream.ErrDetached) || ctx.Err() != nil {
		return err
	}
	if !shown {
		if logged := r.follow(ctx, path); !errors.Is(logged, client.ErrNotDockershim) {
			err = logged
		}
	}
	if err != nil {
		return err
	}
	return cli.WaitExitStatus(ctx, r.Printer, r.conn, r.containerID)
}

// follow copies the log until the container ends: from the file, or from the engine if path is empty.
func (r *runner) follow(ctx context.Context, path string) error {
	o := logfile.Options{Tail: -1, Follow: true, Poll: 50 * time.Millisecond, Ended: untilEnd(r.conn, r.containerID)}
	emit := func(e logfile.Entry) error {
		to := r.Out
		if e.Stream == logfile.Stderr {
			to = r.Err
		}
		text := e.Text
		if r.session.TTY && r.OutTerminal { // the terminal is not in raw mode here
			text = bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n"))
		}
		_, err := to.Write(text)
		if errors.Is(err, syscall.EPIPE) {
			return &stream.SignalError{Signal: syscall.SIGPIPE}
		}
		return err
	}
	if path == "" {
		return engineLog(ctx, r.conn, o, r.containerID, emit)
	}
	return logfile.Read(ctx, path, o, emit)
}

const (
	// earlyDelay is how long a new connection must be quiet before earlier output is written.
	earlyDelay = 200 * time.Millisecond
	// overlap is how long the connection may repeat output that was already written from the log.
	overlap = time.Second
)

// earlyOutput writes the log before the output of an attached session. CRI attaches only to a running container, so a
// first prompt would be lost otherwise.
type earlyOutput struct {
	out     io.Writer
	dialled time.Time // log entries from this time on may also arrive over the connection
	log     func(emit func(logfile.Entry) error) error
	raw     bool // the terminal is in raw mode and adds no carriage returns

	mu    sync.Mutex // guards the fields below and the order of writes
	shown bool
	n     int64 // bytes that came over the connection
	timer *time.Timer
	// twice is text from the log that may also come over the connection.
	twice      []byte
	twiceUntil time.Time
}

// connected is called when the session accepts output.
func (e *earlyOutput) connected() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer = time.AfterFunc(earlyDelay, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		_ = e.show() // a broken output ends the session at its next write
	})
}

func (e *earlyOutput) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.n += int64(len(p))
	if err := e.show(); err != nil {
		return 0, err
	}
	if _, err := e.out.Write(e.unseen(p)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// finish reports whether the log is not needed any more: output came over the connection, or a connected terminal has
// the log already. With an unreadable log, a connected terminal counts as having it.
func (e *earlyOutput) finish() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.timer != nil {
		e.timer.Stop()
	}
	shown := e.n > 0 || e.shown && e.timer != nil
	e.shown = true
	return shown
}

// show writes the log, once.
func (e *earlyOutput) show() error {
	if e.shown {
		return nil
	}
	e.shown = true
	var broken error // error of the output
	var last byte
	_ = e.log(func(entry logfile.Entry) error { // an unreadable log does not end the session
		text := entry.Text
		if e.raw && len(text) > 0 {
			text, last = returned(text, last), text[len(text)-1]
		}
		if len(e.twice) > 0 || !entry.Time.Before(e.dialled) {
			e.twice = append(e.twice, text...)
			e.twice = e.twice[max(0, len(e.twice)-maxPending):]
		}
		_, broken = e.out.Write(text)
		return broken
	})
	e.twiceUntil = time.Now().Add(overlap)
	return broken
}

// returned adds a carriage return before each newline, as a terminal does. containerd drops them from its logs. last is
// the byte before text.
func returned(text []byte, last byte) []byte {
	var out []byte
	for _, b := range text {
		if b == '\n' && last != '\r' {
			out = append(out, '\r')
		}
		out, last = append(out, b), b
	}
	return out
}

// unseen returns p without the part that was written from the log.
func (e *earlyOutput) unseen(p []byte) []byte {
	if len(e.twice) > 0 && time.Now().After(e.twiceUntil) {
		e.twice = nil
	}
	for i := range e.twice {
		seen := e.twice[i:]
		if common := min(len(seen), len(p)); common > 0 && bytes.Equal(seen[:common], p[:common]) {
			e.twice = seen[common:]
			return p[common:]
		}
	}
	e.twice = nil
	return p
}
