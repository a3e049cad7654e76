package stream

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/internal/enginestream"
	"github.com/crishim/crishim/shim/internal/ocitext"
)

// Exit statuses, as shells have them, of commands that were never started.
const (
	codeCannotRun = 126
	codeNotFound  = 127
)

// speaker tells the shim's words apart from a command's.
const speaker = "crishim: "

// output is where an exec's output goes. When a process cannot be started the
// engine says why on its standard output, so that is held back until the process
// is known to run; then it passes through untouched.
type output struct {
	*enginestream.Output
	stdout io.Writer
	stderr io.Writer // nil: not wanted
	tty    bool
}

// outputOf is the output of a process with these ends.
func outputOf(tty bool, e ends) output {
	o := output{Output: enginestream.NewOutput(tty, e.stdout, e.stderr), stdout: e.stdout, stderr: e.stderr, tty: tty}
	if o.stdout == nil {
		o.stdout = io.Discard
	}
	return o
}

// settle delivers what was held back, or the reason why the process did not
// start, and returns the exit status.
func (o output) settle(st container.ExecInspect) (int, error) {
	if st.Pid != 0 {
		return st.ExitCode, o.Open()
	}
	reason := ocitext.Plain(strings.TrimSpace(string(o.Take())))
	if reason == "" && st.ExitCode == 0 {
		return 0, fmt.Errorf("the engine did not start the command and did not say why: %w", errdefs.ErrInternal)
	}
	var err error
	switch {
	case reason == "":
	case o.tty:
		_, err = io.WriteString(o.stdout, speaker+reason+"\r\n")
	case o.stderr != nil:
		_, err = io.WriteString(o.stderr, speaker+reason+"\n")
	}
	return startCode(reason, st.ExitCode), err
}

// startCode tells a command that is not there from one that cannot be run. Old
// engines have one status for both, and only the text of the OCI runtime differs.
func startCode(reason string, code int) int {
	missing := strings.Contains(reason, "executable file not found") || strings.Contains(reason, "no such file or directory")
	switch {
	case strings.Contains(reason, "chdir"): // the working directory is what is missing
		return codeCannotRun
	case missing:
		return codeNotFound
	}
	return cmp.Or(code, codeCannotRun)
}
