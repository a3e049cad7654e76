package stream

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/host/proctree"
)

const (
	// startFirst is how long a start usually takes. Asking sooner is for nothing:
	// a process that ends or speaks before is noticed without a question.
	startFirst   = 50 * time.Millisecond
	inspectFirst = 5 * time.Millisecond
	inspectMax   = 250 * time.Millisecond
	visibleTime  = time.Second // for the engine to notice that a process is gone
)

// begun waits until an exec that is being started has a process, or is over. It
// asks after the first pause, or when early says that it is worth it.
func begun(ctx context.Context, engine ExecInspector, execID string, pause time.Duration, early <-chan struct{}) (container.ExecInspect, error) {
	for ; ; pause = min(2*pause, inspectMax) {
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-early:
			early, pause = nil, inspectFirst
		case <-ctx.Done():
			timer.Stop()
			return container.ExecInspect{}, context.Cause(ctx)
		}
		timer.Stop()
		st, err := engine.ContainerExecInspect(ctx, execID)
		// Before the start the engine reports neither a process nor a status.
		if err != nil || st.Pid != 0 || (!st.Running && st.ExitCode != 0) {
			return st, err
		}
	}
}

// locate finds the process of an exec on this host. ErrGone means that it has
// ended; any other error that it cannot be reached from here.
func locate(ctx context.Context, engine ExecInspector, execID, containerID string) (proctree.Process, error) {
	st, err := begun(ctx, engine, execID, inspectFirst, nil)
	if errdefs.IsNotFound(err) {
		return proctree.Process{}, proctree.ErrGone
	}
	if err != nil {
		return proctree.Process{}, err
	}
	return visible(ctx, engine, st, execID, containerID)
}

// visible finds the process that the engine has just reported.
func visible(ctx context.Context, engine ExecInspector, st container.ExecInspect, execID, containerID string) (proctree.Process, error) {
	var err error
	deadline := time.Now().Add(visibleTime)
	for pause := inspectFirst; err == nil; pause = min(2*pause, inspectMax) {
		if !st.Running {
			return proctree.Process{}, proctree.ErrGone
		}
		if found, err := proctree.Find(st.Pid); err == nil && found.InContainer(containerID) {
			return found, nil
		}
		if time.Now().After(deadline) {
			return proctree.Process{}, fmt.Errorf("process %d of the engine is not visible on this host: %w", st.Pid, errdefs.ErrFailedPrecondition)
		}
		if err := sleep(ctx, pause); err != nil {
			return proctree.Process{}, err
		}
		st, err = engine.ContainerExecInspect(ctx, execID)
	}
	if errdefs.IsNotFound(err) {
		return proctree.Process{}, proctree.ErrGone
	}
	return proctree.Process{}, err
}

// killExec ends the process of an exec and its descendants.
func killExec(ctx context.Context, engine ExecInspector, execID, containerID string) error {
	target, err := locate(ctx, engine, execID, containerID)
	if errors.Is(err, proctree.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	return proctree.Kill(ctx, target, containerID)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
