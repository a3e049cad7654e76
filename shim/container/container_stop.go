package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

// StopContainer ends a container: its stop signal, and SIGKILL once the timeout
// is over. One that has ended or is not there has been stopped.
func (s *Service) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	if r.GetTimeout() < 0 {
		return nil, fmt.Errorf("stop container: %w", invalid("timeout %d is negative", r.GetTimeout()))
	}
	m, err := state.FindContainer(ctx, s.engine, r.GetContainerId())
	if errdefs.IsNotFound(err) {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stop: %w", err)
	}
	if m.Running() {
		if err := lifecycle.Stop(ctx, s.engine, m.Detail.ID, r.GetTimeout()); err != nil {
			return nil, err
		}
	}
	s.AwaitLog(ctx, m.Detail.ID)
	return &runtimeapi.StopContainerResponse{}, nil
}

// Kill ends a container of a pod at once, for the sandbox that goes down.
func (s *Service) Kill(ctx context.Context, id string) error {
	if err := lifecycle.Stop(ctx, s.engine, id, 0); err != nil {
		return err
	}
	s.AwaitLog(ctx, id)
	return nil
}

// AwaitLog waits until a container that has ended is reported so: until then the end of
// its log is still to come.
func (s *Service) AwaitLog(ctx context.Context, id string) { s.logs.Complete(ctx, id) }
