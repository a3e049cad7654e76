package stream

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/proctree"
	"github.com/crishim/crishim/shim/state"
)

// running inspects a container of the given kind (see state.LabelType) and
// insists that it runs.
func (s *Server) running(ctx context.Context, id, kind string) (container.InspectResponse, error) {
	what := "container"
	var c container.InspectResponse
	var err error
	if kind == state.TypeSandbox {
		what = "pod sandbox"
		var found state.FoundSandbox
		found, err = state.FindSandbox(ctx, s.engine, id)
		c = found.Detail
	} else {
		var found state.FoundContainer
		found, err = state.FindContainer(ctx, s.engine, id)
		c = found.Detail
	}
	if err != nil {
		return c, err
	}
	if !c.State.Running {
		return c, fmt.Errorf("%s %q is in %s state: %w", what, id, stateName(c.State, kind), errdefs.ErrFailedPrecondition)
	}
	return c, nil
}

// containerPoll is how often a container is asked for whose processes are not visible here.
const containerPoll = time.Second

// sharedFirst returns the pid of a running container's first process where the container
// has the process ids of its pod, of another container or of the host, and 0 elsewhere.
// There the kernel does not end its other processes with the first one, and the engine,
// which does, may never tell how an exec has ended.
func sharedFirst(c container.InspectResponse) int {
	if c.ContainerJSONBase == nil || c.State == nil || c.HostConfig == nil || c.HostConfig.PidMode == "" {
		return 0
	}
	return c.State.Pid
}

// containerEnd returns a channel that is closed when a running container has ended, by
// what the kernel says of its first process, whose pid was read before: the engine notes
// it late while it holds input that is not read. It is closed with ctx, too.
func (s *Server) containerEnd(ctx context.Context, id string, pid int) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for started := ""; ; {
			if first, err := proctree.Find(pid); err == nil && first.InContainer(id) && first.Wait(ctx) == nil {
				return
			}
			// It was started again since the pid was read, or is not visible here.
			c, err := s.running(ctx, id, state.TypeContainer)
			switch {
			case over(err), err == nil && started != "" && c.State.StartedAt != started:
				return
			case err == nil:
				started, pid = c.State.StartedAt, c.State.Pid
			}
			select {
			case <-time.After(containerPoll):
			case <-ctx.Done():
				return
			}
		}
	}()
	return ended
}

// over reports whether the answer of running is that the container does not run.
func over(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) }

// stateName returns the CRI name of the state of something that does not run.
func stateName(st *container.State, kind string) string {
	switch {
	case kind == state.TypeSandbox:
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY.String()
	case st == nil:
		return runtimeapi.ContainerState_CONTAINER_UNKNOWN.String()
	case st.Status == container.StateCreated && st.ExitCode == 0:
		return runtimeapi.ContainerState_CONTAINER_CREATED.String()
	}
	return runtimeapi.ContainerState_CONTAINER_EXITED.String()
}
