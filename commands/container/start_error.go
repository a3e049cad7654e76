package container

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/ocierror"
)

// cannotRun adds a shell's exit status to the error of a command that could not be started. It returns any other error
// unchanged.
func cannotRun(err error) error {
	if err == nil || status.Code(err) == codes.NotFound {
		return err
	}
	var done *cli.StatusError
	code := ocierror.ExitStatus(err.Error())
	if errors.As(err, &done) || code == 0 {
		return err
	}
	return &cli.StatusError{Code: code, Cause: &ociError{cause: err}}
}

// ociError is an OCI runtime's error without the prefixes of engine and containerd.
type ociError struct{ cause error }

func (e *ociError) Error() string { return ocierror.Plain(cli.WithoutStatusPrefix(e.cause)) }

func (e *ociError) Unwrap() error { return e.cause }

// startErrorFilter holds back the first line of a session's output if it looks like the reason why the command could not
// be started. CRI-O's OCI runtime logs such a line, and the session ends with status 255. crishim's dockershim writes it
// and reports 126 or 127 as a shell does. If the session ends like this without further output, the line becomes its
// error. Otherwise the line is written before the further output or at the end.
type startErrorFilter struct {
	to   io.Writer
	mu   sync.Mutex
	text []byte // the line that is held back
	more bool   // there was other output
}

const startErrorSize = 4 << 10

// newStartErrorFilter filters stderr, or a terminal's only output.
func newStartErrorFilter(s *stream.Streams) *startErrorFilter {
	to := &s.Err
	if s.TTY || *to == nil {
		to = &s.Out
	}
	e := &startErrorFilter{to: *to}
	if *to != nil {
		*to = e
	}
	return e
}

// Write implements io.Writer. A start error comes first, and in one piece.
func (e *startErrorFilter) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.more && e.text == nil && (startErrorIn(p, ociStatus) != nil || startErrorIn(p, cli.ExitNotFound) != nil) {
		e.text = bytes.Clone(p)
		return len(p), nil
	}
	e.more = true
	if err := e.release(); err != nil {
		return 0, err
	}
	return e.to.Write(p)
}

func (e *startErrorFilter) release() error {
	held := e.text
	e.text = nil
	if held == nil {
		return nil
	}
	_, err := e.to.Write(held)
	return err
}

// Unwrap returns the underlying output. A session reads the window size from it.
func (e *startErrorFilter) Unwrap() io.Writer { return e.to }

// orElse returns the start error if there was no other output, else err.
func (e *startErrorFilter) orElse(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	var exit *stream.ExitError
	if errors.As(err, &exit) {
		if start := startErrorIn(e.text, exit.Code); start != nil {
			return start
		}
	}
	if writeErr := e.release(); err == nil {
		return writeErr
	}
	return err
}

// ociStatus is the status of a session that failed with an OCI runtime.
const ociStatus = 255

// startErrorIn parses the line of a start error, from an OCI runtime's log or from the dockershim. It returns nil for
// other lines, such as a program's own message.
func startErrorIn(line []byte, code int) error {
	text := strings.TrimSpace(string(line))
	if len(text) > startErrorSize || strings.Contains(text, "\n") {
		return nil
	}
	if reason, ours := strings.CutPrefix(text, "crishim: "); ours && (code == cli.ExitNotFound || code == cli.ExitCannotRun) {
		return &cli.StatusError{Code: code, Cause: errors.New(reason)}
	}
	var start *cli.StatusError
	if code == ociStatus && (strings.HasPrefix(text, "time=") || strings.HasPrefix(text, "{")) && errors.As(cannotRun(errors.New(text)), &start) {
		return start
	}
	return nil
}
