package container

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/logdir"
)

// StartContainer starts a created container. One that runs already is fine; one
// that has ended is not started again, because a new attempt is a new container.
func (s *Service) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	m, err := s.find(ctx, r.GetContainerId())
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	switch {
	case m.running():
		return &runtimeapi.StartContainerResponse{}, nil
	case lived(m.c):
		return nil, fmt.Errorf("start container %s: it has run and is %s; create a new one: %w",
			m.c.ID, m.c.State.Status, errdefs.ErrFailedPrecondition)
	}
	if err := s.start(ctx, m); err != nil {
		return nil, fmt.Errorf("start container %s (%s): %w", m.Metadata.GetName(), m.c.ID, err)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (s *Service) start(ctx context.Context, m member) error {
	if m.LogPath != "" {
		defer s.logs.Starting(m.c.ID)()
	}
	if err := s.engine.ContainerStart(ctx, m.c.ID, container.StartOptions{}); err != nil {
		return startError(err, m.privileged())
	}
	if err := s.applyLimits(ctx, m); err != nil {
		// A container without the limits it was promised does not stay.
		patient, cancel := cleanupContext(ctx)
		defer cancel()
		return errors.Join(err, s.stop(patient, m.c.ID, 0))
	}
	s.startLog(ctx, m)
	return nil
}

// startLog never fails a start: the container runs, and its log can still be
// read from the engine.
func (s *Service) startLog(ctx context.Context, m member) {
	if m.LogPath == "" {
		return
	}
	c, err := s.engine.ContainerInspect(ctx, m.c.ID) // the log file has a name only now
	if err == nil && c.ContainerJSONBase != nil {
		err = s.logs.Started(ctx, c.ID, m.logPlace(), c.LogPath)
	}
	if err != nil {
		s.log.Warn("the container's log is not at its path", "id", m.c.ID, "path", m.LogPath, "err", err)
	}
}

func (m member) logPlace() logdir.Place { return logdir.Place{Base: m.LogDir, Path: m.LogPath} }

func (m member) privileged() bool { return m.c.HostConfig != nil && m.c.HostConfig.Privileged }
