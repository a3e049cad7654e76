package stream

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/crishim/crishim/internal/spdyframe"
	"github.com/crishim/crishim/shim/internal/ocitext"
	"github.com/docker/docker/api/types/container"
)

// Exit statuses, as shells have them, of commands that were never started.
const (
	codeCannotRun = 126
	codeNotFound  = 127
)

// speaker tells the shim's words apart from a command's.
const speaker = "crishim: "

// maxHeld is more than any engine has to say about a failed start.
const maxHeld = 64 << 10

// output takes apart what the engine sends for an exec. When a process cannot
// be started the engine says why on its standard output, so that is held back
// until the process is known to run; then it passes through untouched.
type output struct {
	tty    bool
	stdout *gate
	spoken chan struct{} // closed when something is held back for the first time
	stderr io.Writer     // nil: not wanted
	since  atomic.Int64  // start of the read that is going on, by clock; 0 while there is none
}

func newOutput(tty bool, stdout, stderr io.Writer) *output {
	spoken := make(chan struct{})
	o := &output{tty: tty, stdout: &gate{to: stdout, spoken: spoken}, spoken: spoken, stderr: stderr}
	if stdout == nil {
		o.stdout.to = io.Discard
	}
	return o
}

// copy carries everything until the engine's end of stream.
func (o *output) copy(r io.Reader) error {
	r = timedReader{r: r, since: &o.since}
	if o.tty {
		return spdyframe.Copy(o.stdout, r)
	}
	stderr := o.stderr
	if stderr == nil {
		stderr = io.Discard
	}
	return copyOutputs(o.stdout, stderr, r)
}

func (o *output) open() { _ = o.stdout.open() }

// quiet gives a channel that is closed when the engine has sent nothing for d.
// Time that the client takes to read does not count.
func (o *output) quiet(ctx context.Context, d time.Duration) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		tick := time.NewTicker(d / 20)
		defer tick.Stop()
		begin := clock()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
				since, now := o.since.Load(), clock()
				if since != 0 && now-since >= int64(d) && now-begin >= int64(d) {
					close(done)
					return
				}
			}
		}
	}()
	return done
}

// settle delivers what was held back and gives the exit status.
func (o *output) settle(st container.ExecInspect) (int, error) {
	if st.Pid != 0 {
		return st.ExitCode, o.stdout.open()
	}
	reason := ocitext.Plain(strings.TrimSpace(string(o.stdout.take())))
	if reason == "" && st.ExitCode == 0 {
		return 0, fmt.Errorf("the engine did not start the command and did not say why: %w", errdefs.ErrInternal)
	}
	var err error
	switch {
	case reason == "":
	case o.tty:
		_, err = io.WriteString(o.stdout.to, speaker+reason+"\r\n")
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

// gate holds what is written to it until it is opened, or too much of it.
type gate struct {
	to     io.Writer
	mu     sync.Mutex
	opened bool
	buf    bytes.Buffer
	spoken chan struct{} // nil: told already
}

func (g *gate) Write(b []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.spoken != nil {
		close(g.spoken)
		g.spoken = nil
	}
	if !g.opened && g.buf.Len()+len(b) <= maxHeld {
		return g.buf.Write(b)
	}
	if err := g.flush(); err != nil {
		return 0, err
	}
	return g.to.Write(b)
}

func (g *gate) open() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.flush()
}

func (g *gate) flush() error {
	g.opened = true
	if g.buf.Len() == 0 {
		return nil
	}
	_, err := g.buf.WriteTo(g.to)
	g.buf = bytes.Buffer{}
	return err
}

// take removes what is held, so that nobody else delivers it.
func (g *gate) take() []byte {
	g.mu.Lock()
	defer g.mu.Unlock()
	held := g.buf.Bytes()
	g.buf = bytes.Buffer{}
	return held
}

var loaded = time.Now()

// clock counts nanoseconds and is never 0. It goes on evenly when the machine's
// clock is put forward or back.
func clock() int64 { return int64(time.Since(loaded)) + 1 }

// timedReader notes when a read began.
type timedReader struct {
	r     io.Reader
	since *atomic.Int64
}

func (t timedReader) Read(b []byte) (int, error) {
	t.since.Store(clock())
	defer t.since.Store(0)
	return t.r.Read(b)
}
