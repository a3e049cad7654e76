package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/crishim/crishim/client/stream"
	"github.com/crishim/crishim/commands/cli/argv"
)

// TestReportOfACleanUpThatFails: the exit status is the command's, and the error of the clean-up is still printed.
func TestReportOfACleanUpThatFails(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	p := NewPrinter(&Process{Err: &stderr})
	code := report(p, argv.Line{Verb: "run"}, 0, false, Join(fmt.Errorf("web: %w", &stream.ExitError{Code: 3}), errors.New("the container is still there")))
	if want := "crishim: the container is still there\n"; code != 3 || stderr.String() != want {
		t.Errorf("got status %d and %q, want 3 and %q", code, stderr.String(), want)
	}
}

// TestReportOfAnEnginesError: the engine's prefix is removed from the error of a call and from the error of a stream.
func TestReportOfAnEnginesError(t *testing.T) {
	t.Parallel()
	for _, err := range []error{
		errors.New("exec in container web: Error response from daemon: it is paused"),
		fmt.Errorf("exec in container web: %w", status.Error(codes.Unknown, "Error response from daemon: it is paused")),
	} {
		if got, want := NewPrinter(&Process{}).Sentence(err), "exec in container web: it is paused"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
