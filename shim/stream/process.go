package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/internal/enginestream"
	"github.com/crishim/crishim/shim/host/proctree"
	"github.com/crishim/crishim/shim/state"
)

const (
	// sizeWait is how long a terminal's first size is waited for, so that the
	// engine has it when the process starts.
	sizeWait = 250 * time.Millisecond
	// drainTime is how long output may take that a dead process left behind. The
	// engine cuts the stream after 2 s itself, also when a child holds it open.
	drainTime = 5 * time.Second
	// lastWords is how long the output of a container that has ended may take, and
	// lastStatus how long the engine may then be without the status of an exec in it.
	lastWords  = time.Second
	lastStatus = 500 * time.Millisecond
	killTime   = 10 * time.Second // for a process tree to be gone
	// statusTime is how long the engine may fail to say how a process ended.
	statusTime = 10 * time.Second
)

// The engine looks for detach keys of its own in a terminal's input, ctrl-p and ctrl-q
// where it is not given others, and holds back what may be their beginning. Clients of
// the CRI have theirs. There is no value for none, so the engine gets keys that are not
// typed: for an attach bytes that are in no UTF-8 text. For an exec they come in JSON,
// where only ASCII works; it begins with the key that programs use least, and the rest
// nobody types behind it. The one that is typed alone comes with the key after it.
const (
	noAttachKeys = "\xff,\xfe,\xff,\xfe,\xff,\xfe,\xff,\xfe"
	noExecKeys   = "ctrl-^,ctrl-@,ctrl-_,ctrl-@,ctrl-^,ctrl-@,ctrl-_,ctrl-@,ctrl-^,ctrl-@,ctrl-_,ctrl-@"
)

// ends are what the process of an exec is connected to.
type ends struct {
	stdin          io.Reader // nil: no input
	stdout, stderr io.Writer // nil: dropped
	resize         <-chan terminalSize
	detached       *atomic.Bool // nil: never
}

// process is one exec of the engine.
type process struct {
	server    *Server
	engine    execEngine
	container string
	id        string
	tty       bool
	ends      ends
	conn      types.HijackedResponse
	record    *record
	ending    <-chan struct{}                       // closed with the container; nil where the kernel ends both together, and when it was noticed
	orphaned  bool                                  // its container has ended
	over      atomic.Pointer[container.ExecInspect] // how it ended, when that is known
}

// run makes and starts a process, carries its streams, and returns its exit
// status. When ctx ends first, the process is killed with all it started,
// unless the client has detached from it.
func (s *Server) run(ctx context.Context, r *ExecRequest, e ends) (code int, err error) {
	size := firstSize(ctx, r.TTY, e.resize)
	created, err := s.engine.ContainerExecCreate(ctx, r.ContainerID, container.ExecOptions{
		User: r.User, Env: r.Env, WorkingDir: r.WorkingDir, Cmd: r.Cmd,
		Tty: r.TTY, ConsoleSize: size, DetachKeys: noExecKeys,
		// Output is attached even where nobody wants it: the engine ends the
		// session with the process only then, and says there why it cannot start.
		AttachStdin: e.stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, err
	}
	if created.ID == "" {
		return 0, fmt.Errorf("the engine gave the process no id: %w", errdefs.ErrInternal)
	}
	p := &process{server: s, engine: s.engine, container: r.ContainerID, id: created.ID, tty: r.TTY, ends: e}
	p.record = s.records.begin(p.id, r.ContainerID)
	defer p.record.end()

	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	started := make(chan struct{})
	if e.resize != nil {
		go p.followSizes(helpers, started, size)
	}
	start := context.WithoutCancel(ctx) // what was created is always started, or the engine keeps it
	p.conn, err = s.engine.ContainerExecAttach(start, p.id, container.ExecAttachOptions{Tty: r.TTY, ConsoleSize: size})
	if err != nil {
		return 0, p.startError(ctx, err)
	}
	defer p.conn.Close()
	if r.firstPID != 0 {
		p.ending = s.containerEnd(helpers, r.ContainerID, r.firstPID)
	}
	return p.follow(ctx, helpers, started)
}

// startError explains why a start was refused: the client library tells no more
// than a number, but mostly the container has stopped in the meantime.
func (p *process) startError(ctx context.Context, err error) error {
	if _, stopped := p.server.running(ctx, p.container, state.TypeContainer); stopped != nil {
		return stopped
	}
	return err
}

// firstSize waits a moment for the size that a client sends right away.
func firstSize(ctx context.Context, tty bool, sizes <-chan terminalSize) *[2]uint {
	if !tty || sizes == nil {
		return nil
	}
	timer := time.NewTimer(sizeWait)
	defer timer.Stop()
	select {
	case size, ok := <-sizes:
		if ok && size.Width > 0 && size.Height > 0 {
			return &[2]uint{uint(size.Height), uint(size.Width)}
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil
}

// follow carries the streams of a process that is being started until it has
// ended. What helps with that ends with the other context.
func (p *process) follow(ctx, helpers context.Context, started chan<- struct{}) (int, error) {
	if p.ends.stdin != nil {
		go p.copyIn()
	}
	out := outputOf(p.tty, p.ends)
	copied := make(chan error, 1)
	go func() { copied <- out.Copy(p.conn.Reader) }()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		p.watch(helpers, out, started)
	}()

	var drained <-chan struct{}
	for {
		select {
		case err := <-copied:
			return p.ended(ctx, out, err)
		case <-ctx.Done():
			return 0, p.abandon(ctx)
		case <-exited: // but its output may still be on the way
			exited = nil
			if drained == nil {
				drained = out.Quiet(helpers, drainTime)
			}
		case <-p.ending:
			p.endWithContainer(ctx)
			drained = out.Quiet(helpers, lastWords)
		case <-drained:
			p.conn.Close()
			<-copied //nolint:errcheck // the connection was just closed under it
			return p.ended(ctx, out, nil)
		}
	}
}

// endWithContainer does what the kernel does where a container has process ids of its own.
func (p *process) endWithContainer(ctx context.Context) {
	p.ending, p.orphaned = nil, true
	known := p.record.process()
	if known == nil {
		return // it is only being started, which fails now
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastStatus)
	defer cancel()
	if err := proctree.Kill(ctx, *known, p.container); err != nil {
		p.server.opts.Log.Warn("process of exec is left in a container that has ended", "container", p.container, "exec", p.id, "error", err)
	}
}

// ended gives the exit status when the output is complete.
func (p *process) ended(ctx context.Context, out output, copyErr error) (int, error) {
	if copyErr != nil && ctx.Err() == nil {
		p.server.opts.Log.Debug("exec output", "exec", p.id, "error", copyErr)
	}
	st, err := p.wait(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return 0, p.abandon(ctx)
		}
		return 0, err
	}
	return out.settle(st)
}

// abandon ends what nobody waits for any more and says why.
func (p *process) abandon(ctx context.Context) error {
	cause := context.Cause(ctx)
	if p.ends.detached != nil && p.ends.detached.Load() {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := p.kill(ctx); err != nil {
		p.server.opts.Log.Warn("process of exec is left running", "container", p.container, "exec", p.id, "error", err)
		return errors.Join(cause, err)
	}
	return cause
}

// kill ends the process and its descendants. The engine has no such call, so it
// needs the engine's processes to be visible here.
func (p *process) kill(ctx context.Context) error {
	return killExec(ctx, p.engine, p.id, p.container)
}

// copyIn carries input until it ends, which the process gets to see, or until
// the process takes no more. Then the rest is read and dropped: unread input
// would hold up everything else that the client sends.
func (p *process) copyIn() {
	if err := enginestream.Copy(p.conn.Conn, p.ends.stdin); err != nil {
		_, _ = io.Copy(io.Discard, p.ends.stdin)
		return
	}
	_ = p.conn.CloseWrite() // fails when the process has ended, which is fine
}
