package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/output"
)

// Exit statuses of crishim itself; docs/exit-codes.md.
const (
	exitFailed     = 1
	ExitUsage      = 2
	ExitOwnFailure = 125 // crishim failed in a verb that passes on the command's status
	ExitCannotRun  = 126 // as in a shell
	ExitNotFound   = 127
	exitSignals    = 128
)

// inputError is a mistake in a file that a user gave, found before anything is dialled.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

// BadInput marks an error as a mistake in a file. The exit status is 2, as for wrong usage.
func BadInput(err error) error { return inputError{err} }

// hinted is an error with a next step.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

func (e *hinted) Hint() string { return e.hint }

// WithHint adds a next step to an error.
func WithHint(err error, format string, args ...any) error {
	return &hinted{error: err, hint: output.Sanitize(fmt.Sprintf(format, args...))}
}

// StatusError is a command that could not be run in the container; Code is 126 or 127.
type StatusError struct {
	Code  int
	Cause error
}

func (e *StatusError) Error() string { return e.Cause.Error() }

func (e *StatusError) Unwrap() error { return e.Cause }

// ErrFollowed ends a verb that runs until it is interrupted, which is success.
var ErrFollowed = errors.New("interrupted")

// nodeError is the failure of a command line on one node.
type nodeError struct{ failure }

func (e *nodeError) Error() string { return e.Node + ": " + e.Message }

func (e *nodeError) Hint() string { return e.failure.Hint }

// About names the argument that an error is about.
func About(ref string, err error) error { return fmt.Errorf("%s: %w", ref, err) }

// IsGone reports whether an error is about an object that does not exist.
func IsGone(err error) bool { return status.Code(err) == codes.NotFound }

// UnlessGone returns err unless IsGone.
func UnlessGone(err error) error {
	if IsGone(err) {
		return nil
	}
	return err
}

// Each tries every argument and joins the failures.
func Each(args []string, do func(arg string) error) error {
	var errs []error
	for _, arg := range args {
		errs = append(errs, do(arg))
	}
	return errors.Join(errs...)
}

// Join is errors.Join, but returns a single error unchanged.
func Join(errs ...error) error {
	joined := errors.Join(errs...)
	if all := Failures(joined); len(all) == 1 {
		return all[0]
	}
	return joined
}

// Failures splits an error of errors.Join. An error that wraps several errors in its own sentence is not split.
func Failures(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	var all []error
	var texts []string
	for _, one := range joined.Unwrap() {
		all = append(all, Failures(one)...)
		texts = append(texts, one.Error())
	}
	if strings.Join(texts, "\n") != err.Error() {
		return []error{err}
	}
	return all
}

// failure is one error or warning, as --error-format=json shows it.
type failure struct {
	Node      string `json:"node,omitempty"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Operation string `json:"operation,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`

	usage string // the line below the message, for people
}

// wordStart matches the beginning of a word in the name of a gRPC code.
var wordStart = lazyregexp.New("([a-z])([A-Z])")

// commandStatus returns the exit status of the user's command, and why it could not be run.
func commandStatus(err error) (code int, why string, ok bool) {
	var exit *stream.ExitError
	var signal *stream.SignalError
	var own *StatusError
	switch {
	case errors.As(err, &exit):
		return exit.Code, "", true
	case errors.As(err, &own):
		return own.Code, own.Error(), true
	case errors.As(err, &signal):
		return signal.ExitCode(), "", true
	}
	return 0, "", false
}

// WriteHint writes each line of a hint.
func WriteHint(w io.Writer, hint string) {
	for line := range strings.Lines(hint) {
		fmt.Fprintf(w, "hint: %s\n", output.Sanitize(strings.TrimSuffix(line, "\n")))
	}
}

// HintOf returns the next step for an error, if one is known.
func HintOf(err error) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}

// engineSays is the prefix of errors from Docker's client. Streams and cri-dockerd pass it on.
const engineSays = "Error response from daemon: "

// WithoutStatusPrefix removes "rpc error: code = X desc = " and engineSays from the errors of a chain.
func WithoutStatusPrefix(err error) string {
	text := err.Error()
	var carrier interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &carrier) {
		return strings.ReplaceAll(text, engineSays, "")
	}
	message := carrier.GRPCStatus().Message()
	if message == "" {
		message = strings.ToLower(carrier.GRPCStatus().Code().String())
	}
	message = strings.ReplaceAll(message, engineSays, "")
	return strings.Replace(text, carrier.Error(), message, 1)
}
