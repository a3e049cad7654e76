package stream

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
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
type output interface {
	carry(conn types.HijackedResponse) error // until the engine's end of stream
	spoken() <-chan struct{}                 // closed when something is held back for the first time
	open()                                   // the process runs
	// quiet gives a channel that is closed when the engine has sent nothing for
	// d. Where the connection is elsewhere it is not, but then carry returns.
	quiet(ctx context.Context, d time.Duration) <-chan struct{}
	settle(st container.ExecInspect) (int, error) // delivers what was held back and gives the exit status
}

// outputOf is the output of a process with these ends.
func outputOf(tty bool, e ends) output {
	if e.handed != nil {
		return e.handed
	}
	o := carried{Output: enginestream.NewOutput(tty, e.stdout, e.stderr), last: lastWords{stdout: e.stdout, stderr: e.stderr, tty: tty}}
	if o.last.stdout == nil {
		o.last.stdout = io.Discard
	}
	return o
}

// carried is output that this process carries.
type carried struct {
	*enginestream.Output
	last lastWords
}

func (o carried) carry(conn types.HijackedResponse) error { return o.Copy(conn.Reader) }

func (o carried) spoken() <-chan struct{} { return o.Spoken() }

func (o carried) open() { _ = o.Open() }

func (o carried) quiet(ctx context.Context, d time.Duration) <-chan struct{} { return o.Quiet(ctx, d) }

func (o carried) settle(st container.ExecInspect) (int, error) { return o.last.settle(st, o) }

// lastWords are where the end of an output goes.
type lastWords struct {
	stdout io.Writer
	stderr io.Writer // nil: not wanted
	tty    bool
}

// held is output that waits for the process to be known to run.
type held interface {
	Open() error  // delivers it
	Take() []byte // removes it
}

// settle delivers what was held back, or the reason that it is, and gives the
// exit status.
func (w lastWords) settle(st container.ExecInspect, h held) (int, error) {
	if st.Pid != 0 {
		return st.ExitCode, h.Open()
	}
	reason := ocitext.Plain(strings.TrimSpace(string(h.Take())))
	if reason == "" && st.ExitCode == 0 {
		return 0, fmt.Errorf("the engine did not start the command and did not say why: %w", errdefs.ErrInternal)
	}
	var err error
	switch {
	case reason == "":
	case w.tty:
		_, err = io.WriteString(w.stdout, speaker+reason+"\r\n")
	case w.stderr != nil:
		_, err = io.WriteString(w.stderr, speaker+reason+"\n")
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
