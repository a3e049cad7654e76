package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

// RemoveContainer removes a container, running or not, with its volumes and the
// link to its log. One that is not there has been removed.
func (s *Service) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	if err := s.Remove(ctx, r.GetContainerId()); err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

// Remove does the work of RemoveContainer, also for a sandbox that is removed.
func (s *Service) Remove(ctx context.Context, id string) error {
	m, err := state.FindContainer(ctx, s.engine, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if m.LogPath != "" && !m.Detail.State.Running {
		s.logs.Complete(ctx, m.Detail.ID) // the engine's log goes with the container
	}
	if err := lifecycle.Remove(ctx, s.engine, m.Detail.ID); err != nil {
		return err
	}
	if m.LogPath == "" {
		return nil
	}
	if err := s.logs.Removed(ctx, m.Detail.ID, logPlace(m), m.Detail.LogPath); err != nil {
		s.log.Warn("the link to a removed container's log stays", "id", m.Detail.ID, "path", m.LogPath, "err", err)
	}
	return nil
}
