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
	// sizeWait is how long the start of a process waits for the terminal's first size.
	sizeWait = 250 * time.Millisecond
	// startTime is the pause before the first inspection, the usual duration of a start. A process that writes to stdout
	// or ends earlier is noticed without polling.
	startTime    = 50 * time.Millisecond
	inspectFirst = 5 * time.Millisecond
	inspectMax   = 250 * time.Millisecond
	inspectTries = 6                // failed inspections before a process counts as unreachable
	inspectTime  = 5 * time.Second  // limit of an inspection, because a hanging engine must not block output for minutes
	startLimit   = time.Minute      // limit for the engine to start a process that has a timeout
	visibleTime  = time.Second      // how long the engine takes to notice that a process is gone
	statusTime   = 10 * time.Second // how long to repeat failed requests for an exit status
	killTime     = 10 * time.Second // for a process tree to end
	// drainTime is how long the output of a dead process may be silent before it ends. The engine itself ends the
	// stream earlier, after 2 s.
	drainTime    = 5 * time.Second
	orphanDrain  = time.Second
	orphanStatus = 500 * time.Millisecond
	// killedByContainer is the exit status if the engine has forgotten an exec of an ended container: 128 + SIGKILL.
	killedByContainer = 137
)

// The engine scans a terminal's input for its detach keys and holds back input that may be a prefix. CRI clients have
// detach keys of their own, but the engine's keys cannot be disabled. They are therefore set to sequences that users never
// type. For an attach these are bytes that are invalid in UTF-8. For an exec the keys are sent as JSON, which has no such
// bytes, so the sequence is ASCII and starts with the least used key.
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
	ending    <-chan struct{} // closed when the container ends; nil without a shared PID namespace, and once the end was handled
	orphaned  bool            // the container has ended
}

// run carries a process's streams and returns its exit status. When ctx ends, the process and its descendants are
// killed, unless the client has detached. dockershim's counterpart is NativeExecHandler.
func (s *Server) run(ctx context.Context, r *ExecRequest, e ends) (int, error) {
	size := firstSize(ctx, r.TTY, e.resize)
	created, err := s.engine.ContainerExecCreate(ctx, r.ContainerID, container.ExecOptions{
		User: r.User, Env: r.Env, WorkingDir: r.WorkingDir, Cmd: r.Cmd,
		Tty: r.TTY, ConsoleSize: size, DetachKeys: noExecKeys,
		// Without attached output the engine neither ends the session with the process nor reports a failed start.
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
	// A created exec is always started, because the engine would keep it otherwise.
	p.conn, err = s.engine.ContainerExecAttach(context.WithoutCancel(ctx), p.id, container.ExecAttachOptions{Tty: r.TTY, ConsoleSize: size})
	if err != nil {
		// The Docker client returns only the HTTP status. The usual cause is a container that has just stopped.
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
			_ = out.open() // a lost client is noticed elsewhere
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
		case <-exited: // output may still arrive
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

// followSizes starts before the process, because an engine holds a resize request until the process runs. Since API
// 1.42 the start includes the size. If the engine rejects the request, it is repeated once the process runs.
func (p *process) followSizes(ctx context.Context, running <-chan struct{}, first *[2]uint) {
	apply := func(height, width uint) {
		o := container.ResizeOptions{Height: height, Width: width}
		if p.server.engine.ContainerExecResize(ctx, p.id, o) == nil {
			return
		}
		select {
		case <-running:
			_ = p.server.engine.ContainerExecResize(ctx, p.id, o) // an error means that the process has just ended
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

// copyInput copies input until it ends or the process closes its stdin. The rest is discarded, because it would block
// other data of the client.
func copyInput(conn types.HijackedResponse, in io.Reader) {
	if frames.Copy(conn.Conn, in) == nil {
		_ = conn.CloseWrite() // fails if the process has ended
		return
	}
	_, _ = io.Copy(io.Discard, in)
}

// watch returns when the process or ctx has ended. When the process runs, it calls running and records the process.
func (p *process) watch(ctx context.Context, out *output, running func()) {
	found, err := find(ctx, p.server.engine, p.id, p.container, startTime, out.began, running)
	if err == nil {
		p.record.found(found)
		err = found.Wait(ctx)
	}
	if err != nil && !errors.Is(err, proctree.ErrGone) && ctx.Err() == nil {
		running()
		<-ctx.Done() // the process is not visible here, so the end of its output is the only sign
	}
}

// find waits until an exec has a process and calls running. ErrGone means that the process has ended or was never
// started. Any other error means that the process cannot be reached from here.
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
		case st.Pid == 0 && (st.Running || st.ExitCode == 0): // before the start the engine reports neither a pid nor an exit code
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

// wait polls the engine until the process has ended, which may be long after its output has ended.
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

// endWithContainer kills the process and its descendants. In a separate PID namespace the kernel would do so.
func (p *process) endWithContainer(ctx context.Context) {
	p.ending, p.orphaned = nil, true
	known := p.record.process()
	if known == nil {
		return // no process was found yet; a start in an ended container fails
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

// killExec kills the process of an exec and its descendants. The engine has no such call, so the process must be
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
