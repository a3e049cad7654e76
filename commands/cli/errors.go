package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli/argv"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/output"
)

// Exit statuses of crishim itself; docs/exit-codes.md.
const (
	exitFailed     = 1
	ExitUsage      = 2
	ExitOwnFailure = 125 // crishim failed where the command's status is passed on
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

// About names the argument that an error is about.
func About(ref string, err error) error { return fmt.Errorf("%s: %w", ref, err) }

// IsGone reports whether an error says that something does not exist.
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

// Join is errors.Join, but returns a single error as it is.
func Join(errs ...error) error {
	joined := errors.Join(errs...)
	if all := Failures(joined); len(all) == 1 {
		return all[0]
	}
	return joined
}

// Failures splits an error of errors.Join. An error that wraps several others in a sentence of its own
// is returned whole.
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

// report prints what went wrong and returns the status to exit with.
func report(env *Env, line argv.Line, signal syscall.Signal, err error) int {
	if err == nil {
		return 0
	}
	if code, _, ok := commandStatus(err); ok {
		for _, one := range Failures(err) {
			switch own, why, ok := commandStatus(one); {
			case !ok: // of the clean-up
				env.fail(describeFailure(env, one))
			case why != "":
				code := "cannot_run"
				if own == ExitNotFound {
					code = "command_not_found"
				}
				env.fail(failure{Failure: Failure{Code: code, Message: output.Sanitize(why), Hint: HintOf(one)}})
			}
		}
		if env.Compat {
			return exitFailed
		}
		return code
	}
	if errors.Is(err, ErrFollowed) && (signal == 0 || signal == syscall.SIGINT || env.Compat) {
		return 0
	}
	if signal != 0 {
		word := "interrupted"
		if signal != syscall.SIGINT {
			word = signal.String() // terminated, hangup
		}
		if !env.left.Load() {
			env.fail(failure{Failure: Failure{Code: word, Message: word}})
		}
		if env.Compat {
			return exitFailed
		}
		return exitSignals + int(signal)
	}
	for _, one := range Failures(err) {
		env.fail(describeFailure(env, one))
	}
	return failureStatus(env, line, err)
}

// Failure is one error or warning, as --error-format=json shows it.
type Failure struct {
	Node      string `json:"node,omitempty"`
	Code      string `json:"code"`
	Message   string `json:"message"`
	Hint      string `json:"hint,omitempty"`
	Operation string `json:"operation,omitempty"`
	Endpoint  string `json:"endpoint,omitempty"`
}

// failure is one error, with the line below the message for people.
type failure struct {
	Failure
	usage string
}

// describeFailure returns the fields of an error. Its code is the gRPC code, or a code of crishim for errors
// without a call (docs/exit-codes.md).
func describeFailure(env *Env, err error) failure {
	var node *nodeError
	if errors.As(err, &node) {
		return failure{Failure: node.Failure}
	}
	f := failure{Failure: Failure{Code: "failed", Message: Sentence(env, err), Hint: HintOf(err)}}
	var usage *UsageError
	var call *client.Error
	if errors.As(err, &usage) {
		f.usage = usage.Usage
	}
	if errors.As(err, &call) {
		f.Operation, f.Endpoint = call.Op, call.Endpoint
	}
	code := status.Code(err)
	switch {
	case isUsage(err):
		f.Code = "usage"
	case errors.As(err, new(inputError)):
		f.Code = "invalid_input"
	case code != codes.OK && code != codes.Unknown:
		f.Code = strings.ToLower(wordStart.ReplaceAllString(code.String(), "${1}_$2"))
	}
	return f
}

// wordStart matches the beginning of a word in the name of a gRPC code.
var wordStart = lazyregexp.New("([a-z])([A-Z])")

func (env *Env) fail(f failure) { env.say("error", f) }

// say writes one failure or warning to standard error, which all nodes share.
func (env *Env) say(kind string, f failure) {
	if env.of != nil {
		env = env.of
	}
	env.mu.Lock()
	defer env.mu.Unlock()
	if env.global.errorFormat == errorJSON {
		if text, err := json.Marshal(map[string]Failure{kind: f.Failure}); err == nil {
			fmt.Fprintf(env.Err, "%s\n", output.EscapeJSON(text))
			return
		}
	}
	if f.Node != "" {
		f.Message = output.Sanitize(f.Node) + ": " + f.Message
	}
	if kind == "warning" {
		f.Message = "warning: " + f.Message
	}
	fmt.Fprintf(env.Err, "crishim: %s\n", f.Message)
	if f.usage != "" {
		fmt.Fprintf(env.Err, "usage: %s\n", f.usage)
	}
	WriteHint(env.Err, f.Hint)
}

func failureStatus(env *Env, line argv.Line, err error) int {
	var usage *UsageError
	switch {
	case env.Compat && errors.As(err, &usage) && usage.Kind == argv.NoSuchCommand:
		return 3
	case env.Compat, errors.As(err, new(*nodeError)):
		return exitFailed
	case line.PassesStatus():
		return ExitOwnFailure
	case isUsage(err), errors.As(err, new(inputError)):
		return ExitUsage
	}
	return exitFailed
}

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

// Sentence returns an error for people: sanitised, in one line, with a list below it if the error has
// one, and without gRPC's prefix unless --debug is given.
func Sentence(env *Env, err error) string {
	text := err.Error()
	if !env.global.debug {
		text = WithoutStatusPrefix(err)
	}
	var lister interface{ List() []string }
	var list []string
	if errors.As(err, &lister) {
		if head, found := strings.CutSuffix(text, "\n  "+strings.Join(lister.List(), "\n  ")); found {
			text, list = head, lister.List()
		}
	}
	lines := []string{output.Sanitize(strings.TrimRight(text, "\r\n"))}
	for _, line := range list {
		lines = append(lines, "  "+output.Sanitize(line))
	}
	return strings.Join(lines, "\n")
}

// engineSays begins errors of Docker's client, which streams and cri-dockerd pass on.
const engineSays = "Error response from daemon: "

// WithoutStatusPrefix removes "rpc error: code = X desc = " and engineSays from a chain.
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
