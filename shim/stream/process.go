package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/crishim/crishim/internal/frames"
	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/shim/state"
)

const (
	// sizeWait is how long a terminal's first size is awaited, for the start of the process.
	sizeWait = 250 * time.Millisecond
	// startTime is how long a start usually takes. An earlier end or output is noticed without a question.
	startTime    = 50 * time.Millisecond
	inspectFirst = 5 * time.Millisecond
	inspectMax   = 250 * time.Millisecond
	inspectTries = 6                // that fail, before a process counts as out of reach
	inspectTime  = 5 * time.Second  // for one of them: an engine that hangs must not hold back output for minutes
	startLimit   = time.Minute      // for the engine to start a process that has a timeout
	visibleTime  = time.Second      // for the engine to notice that a process is gone, which is not to be found then
	statusTime   = 10 * time.Second // for the engine to fail to say how a process ended
	killTime     = 10 * time.Second // for a process tree to be gone
	// drainTime is how long output of a dead process may take. The engine cuts the stream after 2 s.
	drainTime    = 5 * time.Second
	orphanDrain  = time.Second
	orphanStatus = 500 * time.Millisecond
	// killedByContainer is the status if the engine has forgotten an exec of an ended container: 128 and SIGKILL.
	killedByContainer = 137
)

// The engine looks for detach keys of its own in a terminal's input, and holds back what may be their beginning. CRI
// clients have theirs. The engine cannot be told none, so it gets keys that are not typed: bytes that are in no UTF-8
// text, or, in JSON for an exec, ASCII that begins with the least used key.
const (
	noAttachKeys = "\xff,\xfe,\xff,\xfe,\xff,\xfe,\xff,\xfe"
	noExecKeys   = "ctrl-^,ctrl-@,ctrl-_,ctrl-@,ctrl-^,ctrl-@,ctrl-_,ctrl-@,ctrl-^,ctrl-@,ctrl-_,ctrl-@"
)

type process struct {
	server    *Server
	container string
	id        string
	ends      ends
	conn      types.HijackedResponse
	record    *record
	ending    <-chan struct{} // closed with the container; nil where the kernel ends both together, and when it was noticed
	orphaned  bool            // its container has ended
}

// run carries a process's streams and returns its exit status. When ctx ends, the process is killed with all it
// started, unless the client has detached. It is dockershim's NativeExecHandler.
func (s *Server) run(ctx context.Context, r *ExecRequest, e ends) (int, error) {
	size := firstSize(ctx, r.TTY, e.resize)
	created, err := s.engine.ContainerExecCreate(ctx, r.ContainerID, container.ExecOptions{
		User: r.User, Env: r.Env, WorkingDir: r.WorkingDir, Cmd: r.Cmd,
		Tty: r.TTY, ConsoleSize: size, DetachKeys: noExecKeys,
		// Without attached output the engine neither ends the session with the process nor says why it cannot start.
		AttachStdin: e.stdin != nil, AttachStdout: true, AttachStderr: true,
	})
	if err != nil {
		return 0, err
	}
	if created.ID == "" {
		return 0, fmt.Errorf("the engine gave the process no id: %w", errdefs.ErrInternal)
	}
	p := &process{server: s, container: r.ContainerID, id: created.ID, ends: e}
	p.record = s.records.begin(p.id, r.ContainerID)
	defer p.record.end()

	helpers, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	running := make(chan struct{})
	if e.resize != nil {
		go p.followSizes(helpers, running, size)
	}
	// What was created is always started, or the engine keeps it.
	p.conn, err = s.engine.ContainerExecAttach(context.WithoutCancel(ctx), p.id, container.ExecAttachOptions{Tty: r.TTY, ConsoleSize: size})
	if err != nil {
		// The client library tells no more than a number, but mostly the container has stopped in the meantime.
		if _, stopped := s.running(ctx, p.container, state.TypeContainer); stopped != nil {
			err = stopped
		}
		return 0, err
	}
	defer p.conn.Close()
	if r.firstPID != 0 {
		p.ending = s.containerEnd(helpers, r.ContainerID, r.firstPID)
	}
	if e.stdin != nil {
		go copyInput(p.conn, e.stdin)
	}
	return p.follow(ctx, helpers, newOutput(p.conn, r.TTY, e), running)
}

func (p *process) follow(ctx, helpers context.Context, out *output, running chan<- struct{}) (int, error) {
	copied := make(chan error, 1)
	go func() { copied <- out.copy() }()
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		p.watch(helpers, out, sync.OnceFunc(func() {
			_ = out.open() // a client that is gone is noticed elsewhere
			close(running)
			if p.ends.running != nil {
				p.ends.running()
			}
		}))
	}()
	for {
		select {
		case err := <-copied:
			if err != nil && ctx.Err() == nil {
				p.server.opts.Log.Debug("exec output", "exec", p.id, "error", err)
			}
			st, err := p.wait(ctx)
			switch {
			case err != nil && ctx.Err() != nil:
				return 0, p.abandon(ctx)
			case err != nil:
				return 0, err
			}
			return out.exitStatus(st)
		case <-ctx.Done():
			return 0, p.abandon(ctx)
		case <-exited: // but its output may still be on the way
			exited = nil
			out.drain(drainTime)
		case <-p.ending:
			p.endWithContainer(ctx)
			out.drain(orphanDrain)
		}
	}
}

func firstSize(ctx context.Context, tty bool, sizes <-chan remotecommand.TerminalSize) *[2]uint {
	if !tty || sizes == nil {
		return nil
	}
	select {
	case size, ok := <-sizes:
		if ok && size.Width > 0 && size.Height > 0 {
			return &[2]uint{uint(size.Height), uint(size.Width)}
		}
	case <-time.After(sizeWait):
	case <-ctx.Done():
	}
	return nil
}

// followSizes begins before the start: an engine keeps the request until the process runs. API 1.42 takes the size
// with the start. An engine that refuses is asked again when the process runs.
func (p *process) followSizes(ctx context.Context, running <-chan struct{}, first *[2]uint) {
	apply := func(height, width uint) {
		o := container.ResizeOptions{Height: height, Width: width}
		if p.server.engine.ContainerExecResize(ctx, p.id, o) == nil {
			return
		}
		select {
		case <-running:
			_ = p.server.engine.ContainerExecResize(ctx, p.id, o) // a failure means that the process has just ended
		case <-ctx.Done():
		}
	}
	if first != nil {
		apply(first[0], first[1])
	}
	followSizes(ctx, p.ends.resize, apply)
}

func followSizes(ctx context.Context, sizes <-chan remotecommand.TerminalSize, apply func(height, width uint)) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok {
				return
			}
			if size.Width > 0 && size.Height > 0 {
				apply(uint(size.Height), uint(size.Width))
			}
		case <-ctx.Done():
			return
		}
	}
}

// copyInput carries input until it ends or the process takes no more. The rest is read and dropped: it would hold up
// what else the client sends.
func copyInput(conn types.HijackedResponse, in io.Reader) {
	if frames.Copy(conn.Conn, in) == nil {
		_ = conn.CloseWrite() // fails when the process has ended, which is fine
		return
	}
	_, _ = io.Copy(io.Discard, in)
}

// watch returns when the process has ended, or ctx. Once the process runs, it calls running and records the process.
func (p *process) watch(ctx context.Context, out *output, running func()) {
	found, err := find(ctx, p.server.engine, p.id, p.container, startTime, out.began, running)
	if err == nil {
		p.record.found(found)
		err = found.Wait(ctx)
	}
	if err != nil && !errors.Is(err, proctree.ErrGone) && ctx.Err() == nil {
		running()
		<-ctx.Done() // not visible here: the end of its output has to tell
	}
}

// find waits until an exec has a process, and calls running. ErrGone means that the process has ended or was never
// started; any other error that it cannot be reached from here.
func find(ctx context.Context, engine ExecInspector, execID, containerID string, pause time.Duration, early <-chan struct{}, running func()) (proctree.Process, error) {
	deadline := sync.OnceValue(func() time.Time { return time.Now().Add(visibleTime) })
	for failed := 0; ; pause = min(2*pause, inspectMax) {
		select {
		case <-time.After(pause):
		case <-early:
			early, pause = nil, inspectFirst
		case <-ctx.Done():
			return proctree.Process{}, context.Cause(ctx)
		}
		asking, cancel := context.WithTimeout(ctx, inspectTime)
		st, err := engine.ContainerExecInspect(asking, execID)
		cancel()
		switch {
		case errdefs.IsNotFound(err):
			return proctree.Process{}, proctree.ErrGone
		case err != nil:
			if failed++; failed == inspectTries {
				return proctree.Process{}, err
			}
			continue
		case st.Pid == 0 && (st.Running || st.ExitCode == 0): // before the start the engine reports neither a process nor a status
			continue
		case st.Pid != 0:
			running()
		}
		if !st.Running {
			return proctree.Process{}, proctree.ErrGone
		}
		if found, err := proctree.Find(st.Pid); err == nil && found.InContainer(containerID) {
			return found, nil
		}
		if time.Now().After(deadline()) {
			return proctree.Process{}, fmt.Errorf("process %d of the engine is not visible on this host: %w", st.Pid, errdefs.ErrFailedPrecondition)
		}
	}
}

// wait asks the engine until the process has ended, which may be long after the end of its output.
func (p *process) wait(ctx context.Context) (container.ExecInspect, error) {
	deadline := time.Now().Add(statusTime)
	if p.orphaned {
		deadline = time.Now().Add(orphanStatus)
	}
	killed := container.ExecInspect{Pid: -1, ExitCode: killedByContainer}
	for pause := inspectFirst; ; pause = min(2*pause, inspectMax) {
		st, err := p.server.engine.ContainerExecInspect(ctx, p.id)
		switch {
		case err == nil && !st.Running:
			return st, nil
		case err == nil && !p.orphaned:
			deadline = time.Now().Add(statusTime)
		case p.orphaned && time.Now().After(deadline):
			return killed, nil
		case errdefs.IsNotFound(err):
			if _, stopped := p.server.running(ctx, p.container, state.TypeContainer); over(stopped) {
				return killed, nil
			}
			return st, fmt.Errorf("the status of the command is not known: %w", err)
		case time.Now().After(deadline):
			return st, fmt.Errorf("the status of the command is not known: %w", err)
		}
		select {
		case <-time.After(pause):
		case <-p.ending:
			p.endWithContainer(ctx)
			deadline = time.Now().Add(orphanStatus)
		case <-ctx.Done():
			return st, context.Cause(ctx)
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), orphanStatus)
	defer cancel()
	if err := proctree.Kill(ctx, *known, p.container); err != nil {
		p.server.opts.Log.Warn("process of exec is left in a container that has ended", "container", p.container, "exec", p.id, "error", err)
	}
}

func (p *process) abandon(ctx context.Context) error {
	cause := context.Cause(ctx)
	if p.ends.detached != nil && p.ends.detached.Load() {
		return cause
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), killTime)
	defer cancel()
	if err := killExec(ctx, p.server.engine, p.id, p.container); err != nil {
		p.server.opts.Log.Warn("process of exec is left running", "container", p.container, "exec", p.id, "error", err)
		return errors.Join(cause, err)
	}
	return cause
}

// killExec ends the process of an exec and its descendants. The engine has no such call, so the process must be
// visible here.
func killExec(ctx context.Context, engine ExecInspector, execID, containerID string) error {
	found, err := find(ctx, engine, execID, containerID, inspectFirst, nil, func() {})
	if errors.Is(err, proctree.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return proctree.Kill(ctx, found, containerID)
}
