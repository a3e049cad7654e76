package commands

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/output"
)

// The statuses that crishim gives of its own; docs/exit-codes.md.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitOwn     = 125 // crishim's own failure where the command's status is passed through
	exitSignals = 128
)

// report prints what went wrong and returns the status to exit with.
func report(env *Env, line commandLine, signal int, err error) int {
	if err == nil {
		return 0
	}
	if status, ok := commandStatus(err); ok {
		if status.message != "" {
			fmt.Fprintf(env.Err, "crishim: %s\n", status.message)
		}
		writeHint(env.Err, err)
		if env.compat {
			return exitFailed
		}
		return status.code
	}
	if errors.Is(err, errFollowed) && (signal == 0 || signal == int(syscall.SIGINT) || env.compat) {
		return 0
	}
	if signal != 0 {
		fmt.Fprintln(env.Err, "crishim: interrupted")
		if env.compat {
			return exitFailed
		}
		return exitSignals + signal
	}
	printError(env, err)
	return failureStatus(env, line, err)
}

func failureStatus(env *Env, line commandLine, err error) int {
	var usage *usageError
	var input inputError
	var syntax *client.SyntaxError
	isUsage := errors.As(err, &usage) || errors.As(err, &input) || errors.As(err, &syntax)
	switch {
	case env.compat && usage != nil && usage.unknownCommand:
		return 3
	case env.compat:
		return exitFailed
	case line.passesStatus():
		return exitOwn
	case isUsage:
		return exitUsage
	}
	return exitFailed
}

// printError writes one line per failure, each with its hint.
func printError(env *Env, err error) {
	for _, one := range failures(err) {
		fmt.Fprintf(env.Err, "crishim: %s\n", sentence(env, one))
		var usage *usageError
		if errors.As(one, &usage) && usage.usage != "" {
			fmt.Fprintf(env.Err, "usage: %s\n", usage.usage)
		}
		writeHint(env.Err, one)
	}
}

func writeHint(w io.Writer, err error) {
	if hint := hintOf(err); hint != "" {
		for line := range strings.SplitSeq(hint, "\n") {
			fmt.Fprintf(w, "hint: %s\n", output.Sanitize(line))
		}
	}
}

// sentence is the error as a person should read it: without gRPC's prefix,
// unless --debug asks for the whole chain, and with nothing in it that could
// move a terminal's cursor. It is one line, with a list below it where the error
// has one: line breaks in what a runtime or a container said are shown as
// escapes, for what follows them could pass for a line of ours.
func sentence(env *Env, err error) string {
	text := err.Error()
	if !env.global.debug {
		text = withoutStatusPrefix(err)
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

// withoutStatusPrefix cuts "rpc error: code = X desc = " out of a chain.
func withoutStatusPrefix(err error) string {
	text := err.Error()
	var carrier interface {
		error
		GRPCStatus() *status.Status
	}
	if !errors.As(err, &carrier) {
		return text
	}
	message := carrier.GRPCStatus().Message()
	if message == "" {
		message = strings.ToLower(carrier.GRPCStatus().Code().String())
	}
	// cri-dockerd passes on what its engine's client says, who it was included.
	message = strings.ReplaceAll(message, "Error response from daemon: ", "")
	return strings.Replace(text, carrier.Error(), message, 1)
}

// hintOf is the next step for an error, where one is known.
func hintOf(err error) string {
	var hinter interface{ Hint() string }
	if errors.As(err, &hinter) {
		return hinter.Hint()
	}
	return ""
}

// statusOf is a status that the user's own command, not crishim, came to.
type statusOf struct {
	code    int
	message string
}

// commandStatus finds the status of a command that ran (stream.ExitError), or
// could not be run (statusError, 126 and 127).
func commandStatus(err error) (statusOf, bool) {
	var exit *stream.ExitError
	if errors.As(err, &exit) {
		return statusOf{code: exit.Code}, true
	}
	var own *statusError
	if errors.As(err, &own) {
		return statusOf{code: own.code, message: output.Sanitize(own.Error())}, true
	}
	var signal *stream.SignalError
	if errors.As(err, &signal) {
		return statusOf{code: signal.ExitCode()}, true
	}
	return statusOf{}, false
}
