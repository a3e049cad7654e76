package commands

import (
	"context"
	"strings"
	"syscall"
	"testing"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/stdinmux"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// A command line that kubectl-crishim runs gets signals with its standard input, and ends with that.
func TestAttendedCommandLine(t *testing.T) {
	t.Parallel()
	var terminate strings.Builder
	if err := stdinmux.NewWriter(&terminate).Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for stdin, want := range map[string]result{
		terminate.String(): {143, "", "crishim: terminated\n"},
		"":                 {129, "", "crishim: hangup\n"},
	} {
		c := withStub(t, stubcri.Options{})
		c.stdin = stdin
		c.stub.Before("ListContainers", func(ctx context.Context) { <-ctx.Done() })
		c.run(kube.StdinMuxWord, "ps").want(t, want.code, want.out, want.err)
	}
}
