package cli

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/crishim/crishim/client/stream"
)

// TestReportOfACleanUpThatFails: the status is the command's, and what is left is said all the same.
func TestReportOfACleanUpThatFails(t *testing.T) {
	t.Parallel()
	var stderr strings.Builder
	env := (&Env{Err: &stderr}).Fresh(false)
	code := report(env, commandLine{Verb: "run"}, 0, Join(fmt.Errorf("web: %w", &stream.ExitError{Code: 3}), errors.New("the container is still there")))
	if want := "crishim: the container is still there\n"; code != 3 || stderr.String() != want {
		t.Errorf("got status %d and %q, want 3 and %q", code, stderr.String(), want)
	}
}
