package container

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli"
)

// ociTexts are parts of the errors of OCI runtimes (runc, crun, youki) about a command that they
// could not start, with a shell's status for it. There is nothing else to tell 126 from 127: engines
// disagree about the status. They are matched in lower case, in this order.
var ociTexts = []struct {
	text string
	code int
}{
	{"executable file not found", cli.ExitNotFound},
	{"executable file `", cli.ExitNotFound}, // crun: executable file `x` not found
	{"no such file or directory", cli.ExitNotFound},
	{"permission denied", cli.ExitCannotRun},
	{"is a directory", cli.ExitCannotRun},
	{"exec format error", cli.ExitCannotRun},
	{"oci runtime exec failed", cli.ExitCannotRun},
	{"oci runtime create failed", cli.ExitCannotRun},
}

// ociMarks are parts of every such error: "no such file" alone may be about anything.
var ociMarks = []string{"oci runtime", "exec failed", "executable file", "exec: ", "runc", "crun"}

// cannotRun adds to the error of a command that could not be started the status that a shell
// would give; it returns any other error as it is.
func cannotRun(err error) error {
	if err == nil || status.Code(err) == codes.NotFound {
		return err
	}
	var done *cli.StatusError
	if errors.As(err, &done) {
		return err
	}
	text := strings.ToLower(err.Error())
	if !slices.ContainsFunc(ociMarks, func(mark string) bool { return strings.Contains(text, mark) }) {
		return err
	}
	for _, t := range ociTexts {
		if strings.Contains(text, t.text) {
			return &cli.StatusError{Code: t.code, Cause: &ociError{cause: err}}
		}
	}
	return err
}

// ociError is an OCI runtime's error without the layers in front of it.
type ociError struct{ cause error }

func (e *ociError) Error() string {
	text := client.StartFailure(cli.WithoutStatusPrefix(e.cause))
	text, _, _ = strings.Cut(text, "\n, stdout: ") // CRI-O's --sync
	text = strings.TrimSuffix(strings.TrimSpace(text), `"`)
	if plain, err := strconv.Unquote(`"` + text + `"`); err == nil { // it was part of a log line
		text = plain
	}
	return strings.TrimSuffix(text, ": unknown")
}

func (e *ociError) Unwrap() error { return e.cause }

// startErrorFilter holds back, of a session's output, the line that says why a command could not be started: CRI-O's OCI
// runtime logs it, with the status 255, and crishim's dockershim writes it as a shell would. More output, or a session
// that ends in another way, lets it through.
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
	hold := !e.more && e.text == nil && (startErrorIn(p, ociStatus) != nil || startErrorIn(p, cli.ExitNotFound) != nil)
	if hold {
		e.text = bytes.Clone(p)
	}
	e.more = !hold
	e.mu.Unlock()
	if hold {
		return len(p), nil
	}
	if err := e.release(); err != nil {
		return 0, err
	}
	return e.to.Write(p)
}

func (e *startErrorFilter) release() error {
	e.mu.Lock()
	held := e.text
	e.text = nil
	e.mu.Unlock()
	if held == nil {
		return nil
	}
	_, err := e.to.Write(held)
	return err
}

// Unwrap returns the output: a session asks it for the size of the window.
func (e *startErrorFilter) Unwrap() io.Writer { return e.to }

// orElse returns the start error if there was no other output, else err.
func (e *startErrorFilter) orElse(err error) error {
	e.mu.Lock()
	held := e.text
	e.mu.Unlock()
	var exit *stream.ExitError
	if errors.As(err, &exit) {
		if start := startErrorIn(held, exit.Code); start != nil {
			return start
		}
	}
	if writeErr := e.release(); err == nil {
		return writeErr
	}
	return err
}

// ociStatus is a session's status where an OCI runtime's own has become it.
const ociStatus = 255

// startErrorIn parses a line that stands for a command that could not be started, by the status of its session: of an
// OCI runtime's log, or the dockershim's. It returns nil for anything else, such as a program's own message.
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
