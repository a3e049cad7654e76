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
// it runs, its output is let through, its terminal follows the client's, and it
// is written down.
func (p *process) watch(ctx context.Context, out *output, size *[2]uint) {
	started := make(chan struct{})
	if p.ends.resize != nil {
		go p.followSizes(ctx, started, size)
	}
	st, err := begun(ctx, p.engine, p.id)
	if ctx.Err() != nil || err == nil && st.Pid == 0 {
		return // it could not be started; what came as output is the reason
	}
	out.open()
	close(started)
	target, err := locate(ctx, p.engine, p.id, p.container)
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

// followSizes applies each size that arrives, the last one first when the
// process has started: the engine refuses sizes before.
func (p *process) followSizes(ctx context.Context, started <-chan struct{}, last *[2]uint) {
	running := false
	for {
		select {
		case size, ok := <-p.ends.resize:
			if !ok {
				return
			}
			if size.Width == 0 || size.Height == 0 {
				continue
			}
			last = &[2]uint{uint(size.Height), uint(size.Width)}
		case <-started:
			started, running = nil, true
		case <-ctx.Done():
			return
		}
		if running && last != nil {
			// A failure means that the process has just ended.
			_ = p.engine.ContainerExecResize(ctx, p.id, container.ResizeOptions{Height: last[0], Width: last[1]})
		}
	}
}

// wait asks the engine until the process has ended. It may take long, because a
// process can close its output and go on.
func (p *process) wait(ctx context.Context) (container.ExecInspect, error) {
	deadline := time.Now().Add(statusTime)
	for pause := inspectFirst; ; pause = min(2*pause, inspectMax) {
		st, err := p.engine.ContainerExecInspect(ctx, p.id)
		switch {
		case err == nil && !st.Running:
			return st, nil
		case err == nil:
			deadline = time.Now().Add(statusTime)
		case errdefs.IsNotFound(err) && p.containerEnded(ctx):
			return container.ExecInspect{Pid: -1, ExitCode: killedByContainer}, nil
		case errdefs.IsNotFound(err), time.Now().After(deadline):
			return st, fmt.Errorf("the status of the command is not known: %w", err)
		}
		if err := sleep(ctx, pause); err != nil {
			return st, err
		}
	}
}

// containerEnded says whether the container is known not to run.
func (p *process) containerEnded(ctx context.Context) bool {
	_, err := p.server.running(ctx, p.container, state.TypeContainer)
	return errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err)
}
