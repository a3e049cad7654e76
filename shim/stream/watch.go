package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/host/proctree"
	"github.com/crishim/crishim/shim/state"
)

// killedByContainer is the status of a process that its container's end took
// along, when the engine has forgotten it: 128 and SIGKILL.
const killedByContainer = 137

// watch returns when the process is known to have ended, or when ctx ends. Once
// it runs, its output is let through and it is written down. started is closed
// then too.
func (p *process) watch(ctx context.Context, out output, started chan<- struct{}) {
	st, err := begun(ctx, p.engine, p.id, startFirst, out.Spoken())
	if ctx.Err() != nil || err == nil && st.Pid == 0 {
		return // it could not be started; what came as output is the reason
	}
	if err == nil && !st.Running {
		p.over.Store(&st)
	}
	_ = out.Open() // a client that is gone is noticed elsewhere
	close(started)
	var target proctree.Process
	if err == nil {
		target, err = visible(ctx, p.engine, st, p.id, p.container)
	} else {
		target, err = locate(ctx, p.engine, p.id, p.container)
	}
	if errors.Is(err, proctree.ErrGone) {
		return
	}
	if err == nil {
		p.record.found(target)
		err = target.Wait(ctx)
	}
	if err != nil {
		<-ctx.Done() // not visible here: the end of its output has to tell
	}
}

// followSizes applies the first size and each that arrives. It begins before
// the start is asked for: an engine keeps such a request until the process
// runs, and sets the size within a millisecond then, where one that takes the size
// with the start (API 1.42) has it from the first byte. One that refuses instead
// is asked again when the process has started.
func (p *process) followSizes(ctx context.Context, started <-chan struct{}, last *[2]uint) {
	for {
		if last != nil && p.setSize(ctx, *last) != nil {
			select {
			case <-started:
				_ = p.setSize(ctx, *last) // a failure means that the process has just ended
			case <-ctx.Done():
				return
			}
		}
		last = nil
		select {
		case size, ok := <-p.ends.resize:
			if !ok {
				return
			}
			if size.Width > 0 && size.Height > 0 {
				last = &[2]uint{uint(size.Height), uint(size.Width)}
			}
		case <-ctx.Done():
			return
		}
	}
}

func (p *process) setSize(ctx context.Context, size [2]uint) error {
	return p.engine.ContainerExecResize(ctx, p.id, container.ResizeOptions{Height: size[0], Width: size[1]})
}

// wait asks the engine until the process has ended. It may take long, because a
// process can close its output and go on.
func (p *process) wait(ctx context.Context) (container.ExecInspect, error) {
	if st := p.over.Load(); st != nil {
		return *st, nil
	}
	deadline := time.Now().Add(statusTime)
	if p.orphaned {
		deadline = time.Now().Add(lastStatus)
	}
	killed := container.ExecInspect{Pid: -1, ExitCode: killedByContainer}
	for pause := inspectFirst; ; pause = min(2*pause, inspectMax) {
		st, err := p.engine.ContainerExecInspect(ctx, p.id)
		switch {
		case err == nil && !st.Running:
			return st, nil
		case err == nil && !p.orphaned:
			deadline = time.Now().Add(statusTime)
		case p.orphaned && time.Now().After(deadline), errdefs.IsNotFound(err) && p.containerEnded(ctx):
			return killed, nil
		case errdefs.IsNotFound(err), time.Now().After(deadline):
			return st, fmt.Errorf("the status of the command is not known: %w", err)
		}
		select {
		case <-time.After(pause):
		case <-p.ending:
			p.endWithContainer(ctx)
			deadline = time.Now().Add(lastStatus)
		case <-ctx.Done():
			return st, context.Cause(ctx)
		}
	}
}

// containerEnded says whether the container is known not to run.
func (p *process) containerEnded(ctx context.Context) bool {
	_, err := p.server.running(ctx, p.container, state.TypeContainer)
	return over(err)
}
