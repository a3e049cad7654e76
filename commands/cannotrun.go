package commands

import (
	"errors"
	"io"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client/stream"
)

// The statuses that a shell gives for a command it cannot run.
const (
	exitCannotRun = 126
	exitNotFound  = 127
)

// ociTexts are what OCI runtimes (runc, crun, youki) say of a command that they
// could not start. They give nothing else to tell the two cases apart: engines
// disagree about the status. Matched in lower case, in this order.
var ociTexts = []struct {
	text string
	code int
}{
	{"executable file not found", exitNotFound},
	{"executable file `", exitNotFound}, // crun: executable file `x` not found
	{"no such file or directory", exitNotFound},
	{"permission denied", exitCannotRun},
	{"is a directory", exitCannotRun},
	{"exec format error", exitCannotRun},
	{"oci runtime exec failed", exitCannotRun},
	{"oci runtime create failed", exitCannotRun},
}

// ociMarks are what such an error contains besides; "no such file" alone may be
// about anything.
var ociMarks = []string{"oci runtime", "exec failed", "executable file", "exec: ", "runc", "crun"}

// cannotRun gives the error of a command that could not be started the status
// that a shell would; any other error stays as it is.
func cannotRun(err error) error {
	if err == nil || status.Code(err) == codes.NotFound {
		return err
	}
	var done *statusError
	if errors.As(err, &done) {
		return err
	}
	text := strings.ToLower(err.Error())
	if !containsAny(text, ociMarks) {
		return err
	}
	for _, t := range ociTexts {
		if strings.Contains(text, t.text) {
			return &statusError{code: t.code, cause: &ociError{cause: err}}
		}
	}
	return err
}

// ociError is an OCI runtime's error without the layers in front of it.
type ociError struct{ cause error }

func (e *ociError) Error() string {
	text := withoutStatusPrefix(e.cause)
	if _, last, ok := strings.Cut(text, "unable to start container process: "); ok {
		text = last
	}
	text, _, _ = strings.Cut(text, "\n, stdout: ") // CRI-O's --sync
	text = strings.TrimSuffix(strings.TrimSpace(text), `"`)
	return strings.TrimSuffix(unquoted(text), ": unknown")
}

// unquoted takes back the quoting of a text that is part of a log line.
func unquoted(text string) string {
	if plain, err := strconv.Unquote(`"` + text + `"`); err == nil {
		return plain
	}
	return text
}

// startError listens to a session's output for the line that CRI-O's OCI runtime logs
// when it cannot start a command: it comes as output, with the status 255.
type startError struct {
	to   io.Writer
	text []byte // what was written so far, and a little more than a line at most
}

const startErrorSize = 4 << 10

// newStartError puts itself in front of stderr, or of a terminal's only output.
func newStartError(s *stream.Streams) *startError {
	to := &s.Err
	if s.TTY || *to == nil {
		to = &s.Out
	}
	e := &startError{to: *to}
	if *to != nil {
		*to = e
	}
	return e
}

// Write implements io.Writer.
func (e *startError) Write(p []byte) (int, error) {
	if room := startErrorSize + 1 - len(e.text); room > 0 {
		e.text = append(e.text, p[:min(room, len(p))]...)
	}
	return e.to.Write(p)
}

// Unwrap returns the output, of which a session asks the size of the window.
func (e *startError) Unwrap() io.Writer { return e.to }

// orElse returns the start error where all of the output is one, else err. An output
// that is text in a program's own words is none.
func (e *startError) orElse(err error) error {
	var exit *stream.ExitError
	text := strings.TrimSpace(string(e.text))
	logged := strings.HasPrefix(text, "time=") || strings.HasPrefix(text, "{")
	if !errors.As(err, &exit) || exit.Code != 255 || len(e.text) > startErrorSize || strings.Contains(text, "\n") || !logged {
		return err
	}
	var start *statusError
	if could := cannotRun(errors.New(text)); errors.As(could, &start) {
		return start
	}
	return err
}

func (e *ociError) Unwrap() error { return e.cause }

func containsAny(text string, parts []string) bool {
	for _, part := range parts {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}
