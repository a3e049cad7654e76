package commands

import (
	"bytes"
	"context"
	"io"
	"sync"
	"time"

	"github.com/crishim/crishim/logfile"
)

// quietBeforeEarly is how long nothing must come over a new connection before
// what the command wrote earlier is shown.
const quietBeforeEarly = 200 * time.Millisecond

// doubt is how long what the log has shown may still be under way.
const doubt = time.Second

// earlyOutput is the output of an attached session with, in front of it, what
// the command wrote before anyone could connect: CRI attaches to containers
// that run, and a question that they asked at once would not be seen. The log
// has its whole lines.
type earlyOutput struct {
	out     io.Writer
	dialled time.Time // what was logged before this did not come over the connection
	log     func(emit func(logfile.Entry) error) error

	mu    sync.Mutex // guards what follows and the order of writes
	shown bool
	n     int64 // bytes that came over the connection
	timer *time.Timer
	// doubtful is shown text that may come over the connection as well.
	doubtful   []byte
	doubtUntil time.Time
}

// newEarlyOutput reads the log at path, "" if there is none to read.
func newEarlyOutput(ctx context.Context, out io.Writer, path string) *earlyOutput {
	return &earlyOutput{out: out, dialled: time.Now(), shown: path == "", log: func(emit func(logfile.Entry) error) error {
		return logfile.Read(ctx, path, logfile.Options{Tail: -1}, emit)
	}}
}

// connected is called once the session takes output.
func (e *earlyOutput) connected() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.timer = time.AfterFunc(quietBeforeEarly, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		_ = e.show() // a broken output ends the session at its next write
	})
}

// Write passes on what comes over the connection.
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

// finish says whether anything was shown, and that nothing will any more.
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
	var broken error                            // the output's
	_ = e.log(func(entry logfile.Entry) error { // the log is a help, no more
		if len(e.doubtful) > 0 || !entry.Time.Before(e.dialled) {
			e.doubtful = append(e.doubtful, entry.Text...)
			e.doubtful = e.doubtful[max(0, len(e.doubtful)-maxPending):]
		}
		_, broken = e.out.Write(entry.Text)
		return broken
	})
	e.doubtUntil = time.Now().Add(doubt)
	return broken
}

// unseen cuts from what comes over the connection what the log has shown.
func (e *earlyOutput) unseen(p []byte) []byte {
	if len(e.doubtful) > 0 && time.Now().After(e.doubtUntil) {
		e.doubtful = nil
	}
	for i := range e.doubtful {
		seen := e.doubtful[i:]
		if common := min(len(seen), len(p)); common > 0 && bytes.Equal(seen[:common], p[:common]) {
			e.doubtful = seen[common:]
			return p[common:]
		}
	}
	e.doubtful = nil
	return p
}
