package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/logfile"
)

// errTimeUp ends the reading of a log whose line did not come in time.
var errTimeUp = errors.New("the time is up")

// untilLogged reads the log of a container that has started until a line is the
// one that is waited for. Lines that are there already count.
func (o waitOptions) untilLogged(ctx context.Context, enough <-chan struct{}, conn *client.Conn, w *watched) error {
	c, err := conn.Container(ctx, w.id, client.PreferRunning)
	if err != nil {
		return err
	}
	reading, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-enough:
			stop(errTimeUp)
		case <-reading.Done():
		}
	}()
	m := lineMatcher{expr: o.goal.log, pending: map[string][]byte{}}
	how := logsOptions{read: logfile.Options{Follow: true, Tail: -1}}
	err = readLog(reading, conn, how, c, func(_ source, e logfile.Entry) error { return m.entry(e) })
	switch {
	case errors.Is(err, errLineFound), err == nil && m.atEnd():
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(context.Cause(reading), errTimeUp):
		return fmt.Errorf("%s has logged no line that matches %s after %s", w.ref, quote(o.goal.log.String()), o.timeout)
	case err != nil:
		return err
	}
	return fmt.Errorf("%s has ended and has logged no line that matches %s", w.ref, quote(o.goal.log.String()))
}

// errLineFound ends the reading of a log.
var errLineFound = errors.New("the line is found")

// lineMatcher looks for a line that came in one or in several entries.
type lineMatcher struct {
	expr    *regexp.Regexp
	pending map[string][]byte // by stream
}

func (m *lineMatcher) entry(e logfile.Entry) error {
	line := append(m.pending[e.Stream], e.Text...)
	if e.Partial() && len(line) < maxPending {
		m.pending[e.Stream] = line
		return nil
	}
	delete(m.pending, e.Stream)
	if m.expr.Match(bytes.TrimSuffix(line, []byte("\n"))) {
		return errLineFound
	}
	return nil
}

// atEnd looks at what never became a line.
func (m *lineMatcher) atEnd() bool {
	for _, line := range m.pending {
		if m.expr.Match(line) {
			return true
		}
	}
	return false
}
