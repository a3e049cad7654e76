package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/internal/logdir"
	"github.com/crishim/crishim/shim/state"
)

// StopContainer sends the stop signal, and SIGKILL after the timeout. It succeeds if the container has ended or is
// gone.
func (s *Service) StopContainer(ctx context.Context, r *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	if r.GetTimeout() < 0 {
		return nil, fmt.Errorf("stop container: %w", invalid("timeout %d is negative", r.GetTimeout()))
	}
	m, err := state.FindContainer(ctx, s.Engine, r.GetContainerId())
	if errdefs.IsNotFound(err) {
		return &runtimeapi.StopContainerResponse{}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("stop: %w", err)
	}
	if m.Running() {
		if err := lifecycle.Stop(ctx, s.Engine, m.Detail.ID, r.GetTimeout()); err != nil {
			return nil, err
		}
	}
	s.AwaitLog(ctx, m.Detail.ID)
	return &runtimeapi.StopContainerResponse{}, nil
}

func (s *Service) Kill(ctx context.Context, id string) error {
	if err := lifecycle.Stop(ctx, s.Engine, id, 0); err != nil {
		return err
	}
	s.AwaitLog(ctx, id)
	return nil
}

func (s *Service) AwaitLog(ctx context.Context, id string) { s.Logs.Complete(ctx, id) }

// RemoveContainer removes a container, its volumes and the link to its log. It succeeds if the container is gone.
func (s *Service) RemoveContainer(ctx context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	if err := s.Remove(ctx, r.GetContainerId()); err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (s *Service) Remove(ctx context.Context, id string) error {
	m, err := state.FindContainer(ctx, s.Engine, id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove: %w", err)
	}
	if m.LogPath != "" && !m.Detail.State.Running {
		s.Logs.Complete(ctx, m.Detail.ID) // the engine removes the rest of the log with the container
	}
	if err := lifecycle.Remove(ctx, s.Engine, m.Detail.ID); err != nil {
		return err
	}
	if m.LogPath == "" {
		return nil
	}
	if err := s.Logs.Removed(ctx, m.Detail.ID, logdir.Of(m.Container), m.Detail.LogPath); err != nil {
		s.Log.Warn("the link to a removed container's log stays", "id", m.Detail.ID, "path", m.LogPath, "err", err)
	}
	return nil
}
