// Package enginestream reads what a Docker engine sends for an exec or an
// attach. The shim does, and a client to which it has handed its connection.
package enginestream

import (
	"bytes"
	"context"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/docker/docker/pkg/stdcopy"
)

// MaxHeld is more than any engine has to say about a failed start.
const MaxHeld = 64 << 10

// Output takes apart what the engine sends for an exec. When a process cannot
// be started the engine says why on its standard output, so that is held back
// until the process is known to run; then it passes through untouched.
type Output struct {
	tty    bool
	stdout *gate
	spoken chan struct{} // closed when something is held back for the first time
	stderr io.Writer     // nil: not wanted
	since  atomic.Int64  // start of the read that is going on, by clock; 0 while there is none
}

// NewOutput passes on to stdout and stderr, of which nil ones are not wanted.
func NewOutput(tty bool, stdout, stderr io.Writer) *Output {
	spoken := make(chan struct{})
	o := &Output{tty: tty, stdout: &gate{to: stdout, spoken: spoken}, spoken: spoken, stderr: stderr}
	if stdout == nil {
		o.stdout.to = io.Discard
	}
	return o
}

// Copy carries everything until the engine's end of stream.
func (o *Output) Copy(r io.Reader) error {
	r = timedReader{r: r, since: &o.since}
	if o.tty {
		return Copy(o.stdout, r)
	}
	stderr := o.stderr
	if stderr == nil {
		stderr = io.Discard
	}
	_, err := stdcopy.StdCopy(o.stdout, stderr, r)
	return err
}

// Open lets through what was held back, and all that comes: the process runs.
func (o *Output) Open() error { return o.stdout.open() }

// Take removes what is held back, so that nobody else delivers it.
func (o *Output) Take() []byte { return o.stdout.take() }

// Spoken is closed when something is held back for the first time.
func (o *Output) Spoken() <-chan struct{} { return o.spoken }

// Quiet gives a channel that is closed when the engine has sent nothing for d.
// Time that the client takes to read does not count.
func (o *Output) Quiet(ctx context.Context, d time.Duration) <-chan struct{} {
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
	if !g.opened && g.buf.Len()+len(b) <= MaxHeld {
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
