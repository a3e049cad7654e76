package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/removal"
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
	m, err := s.find(ctx, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if m.LogPath != "" && (m.c.State == nil || !m.c.State.Running) {
		s.logs.Complete(ctx, m.c.ID) // the engine's log goes with the container
	}
	if err := s.remove(ctx, m.c.ID); err != nil {
		return err
	}
	if m.LogPath == "" {
		return nil
	}
	if err := s.logs.Removed(ctx, m.c.ID, m.logPlace(), m.c.LogPath); err != nil {
		s.log.Warn("the link to a removed container's log stays", "id", m.c.ID, "path", m.LogPath, "err", err)
	}
	return nil
}

func (s *Service) remove(ctx context.Context, id string) error {
	err := s.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err):
		// The engine's word for "somebody else is removing it".
		return removal.Await(ctx, s.engine, id, err)
	default:
		return fmt.Errorf("remove container %s: %w", id, err)
	}
}
