package stream

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/crishim/crishim/internal/frames"
	"github.com/crishim/crishim/internal/ocierror"
)

const (
	maxHeld = 64 << 10 // more than an engine's message about a failed start

	// The engine sends fast output in records of up to 32 KiB. Records of joinSize and more wait up to joinTime for the
	// next one.
	joinSize = 4 << 10
	joinTime = time.Millisecond
)

// output carries the engine's output. The engine reports a failed start on the standard output, which is therefore held
// back until the process is known to run.
type output struct {
	from           *engineReader
	tty            bool
	stdout, stderr io.Writer
	began          chan struct{} // closed with the first standard output
	begin          func()        // closes began

	mu     sync.Mutex // guards the fields below and writes to stdout
	opened bool
	held   bytes.Buffer // standard output
	timer  *time.Timer  // set while held waits for the engine's next record, see joinTime
	err    error        // error of a write to stdout
}

func newOutput(conn types.HijackedResponse, tty bool, e ends) *output {
	o := &output{from: &engineReader{conn: conn}, tty: tty, stdout: e.stdout, stderr: e.stderr, began: make(chan struct{})}
	o.begin = sync.OnceFunc(func() { close(o.began) })
	if o.stdout == nil {
		o.stdout = io.Discard
	}
	if o.stderr == nil {
		o.stderr = io.Discard
	}
	return o
}

func (o *output) copy() (err error) {
	if o.tty {
		err = frames.Copy(o, o.from)
	} else {
		_, err = stdcopy.StdCopy(o, errorOutput{o}, o.from)
	}
	return errors.Join(err, o.flush())
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.begin()
	o.held.Write(b)
	switch {
	case !o.opened && o.held.Len() <= maxHeld:
	case o.opened && len(b) >= joinSize && o.held.Len() < frames.Size:
		if o.timer == nil {
			o.timer = time.AfterFunc(joinTime, func() { _ = o.flush() }) // the next write returns the error
		}
	default:
		o.release()
	}
	return len(b), o.err
}

// errorOutput writes standard error. Until the process is known to run, it overtakes the standard output that is held
// back; afterwards held standard output is written first.
type errorOutput struct{ *output }

func (o errorOutput) Write(b []byte) (int, error) {
	if err := o.flush(); err != nil {
		return 0, err
	}
	return o.stderr.Write(b)
}

func (o *output) open() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.release()
	return o.err
}

func (o *output) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.opened {
		o.release()
	}
	return o.err
}

// release writes the held output. The caller holds mu.
func (o *output) release() {
	o.opened = true
	if o.timer != nil {
		o.timer.Stop()
		o.timer = nil
	}
	if o.err == nil {
		_, o.err = o.held.WriteTo(o.stdout)
	}
}

func (o *output) exitStatus(st container.ExecInspect) (int, error) {
	if st.Pid != 0 {
		return st.ExitCode, o.open()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	reason := ocierror.Plain(strings.TrimSpace(o.held.String()))
	o.held.Reset()
	if reason == "" && st.ExitCode == 0 {
		return 0, fmt.Errorf("the engine did not start the command and did not say why: %w", errdefs.ErrInternal)
	}
	var err error
	switch {
	case reason == "":
	case o.tty:
		_, err = io.WriteString(o.stdout, "crishim: "+reason+"\r\n")
	default:
		_, err = io.WriteString(o.stderr, "crishim: "+reason+"\n")
	}
	return startCode(reason, st.ExitCode), err
}

func startCode(reason string, code int) int {
	switch ocierror.Of(reason) {
	case ocierror.NotFound:
		return ocierror.StatusNotFound
	case ocierror.NoWorkingDir:
		return ocierror.StatusCannotRun
	}
	return cmp.Or(code, ocierror.StatusCannotRun)
}

// drain ends the output once the engine has been silent for limit. Time in which the client reads does not count.
func (o *output) drain(limit time.Duration) {
	o.from.mu.Lock()
	defer o.from.mu.Unlock()
	if o.from.limit == 0 || limit < o.from.limit {
		o.from.limit = limit
		o.from.restart()
	}
}

// engineReader closes the connection if a read takes longer than limit.
type engineReader struct {
	conn types.HijackedResponse

	mu      sync.Mutex
	limit   time.Duration // 0: no limit
	waiting bool
	timer   *time.Timer
}

func (r *engineReader) Read(b []byte) (int, error) {
	r.wait(true)
	defer r.wait(false)
	return r.conn.Reader.Read(b)
}

func (r *engineReader) wait(waiting bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.waiting = waiting
	r.restart()
}

func (r *engineReader) restart() {
	if r.timer != nil {
		r.timer.Stop()
	}
	if r.waiting && r.limit > 0 {
		r.timer = time.AfterFunc(r.limit, r.conn.Close)
	}
}
