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

// sharedFirst returns the pid of a container's first process if the container shares the PID namespace of its pod,
// another container or the host, otherwise 0. With a shared namespace the kernel does not kill the container's other
// processes, and the engine may never report the end of an exec.
func sharedFirst(c container.InspectResponse) int {
	if c.ContainerJSONBase == nil || c.State == nil || c.HostConfig == nil || c.HostConfig.PidMode == "" {
		return 0
	}
	return c.State.Pid
}

// containerEnd returns a channel that is closed when the container or ctx has ended. It watches the first process,
// because the engine notices the end late while it holds unread input.
func (s *Server) containerEnd(ctx context.Context, id string, pid int) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for started := ""; ; {
			if first, err := proctree.Find(pid); err == nil && first.InContainer(id) && first.Wait(ctx) == nil {
				return
			}
			// The container was restarted since the pid was read, or its process is not visible here.
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
