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

const containerPoll = time.Second

// sharedFirst returns the pid of a container's first process if the container shares the process ids of its pod, of
// another container or of the host, else 0. The kernel does not end the other processes of such a container with the
// first one, and the engine may never tell how an exec has ended.
func sharedFirst(c container.InspectResponse) int {
	if c.ContainerJSONBase == nil || c.State == nil || c.HostConfig == nil || c.HostConfig.PidMode == "" {
		return 0
	}
	return c.State.Pid
}

// containerEnd returns a channel that is closed when the container has ended, or with ctx. It watches the first
// process: the engine notes the end late while it holds input that is not read.
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

func over(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) }

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
