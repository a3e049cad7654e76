package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/state"
)

// member is a pod's container: an inspected engine container with what its labels say.
type member struct {
	state.Container
	c container.InspectResponse
}

// find inspects a container of a pod. What the engine has under that id but no
// pod owns, a sandbox included, is not found as far as these RPCs go.
func (s *Service) find(ctx context.Context, id string) (member, error) {
	if id == "" {
		return member{}, fmt.Errorf("the container id is empty: %w", errdefs.ErrInvalidArgument)
	}
	c, err := s.engine.ContainerInspect(ctx, id)
	if err != nil {
		return member{}, fmt.Errorf("container %s: %w", id, err)
	}
	if c.ContainerJSONBase == nil || c.Config == nil || c.State == nil {
		return member{}, fmt.Errorf("container %s: the engine's answer has no state: %w", id, errdefs.ErrInternal)
	}
	decoded, ok := state.DecodeContainer(c.Name, c.Config.Labels)
	if !ok {
		return member{}, fmt.Errorf("container %s is not a pod's container: %w", id, errdefs.ErrNotFound)
	}
	return member{Container: decoded, c: c}, nil
}

// running: has processes, also while paused or restarting.
func (m member) running() bool {
	return m.c.State.Running || m.c.State.Paused || m.c.State.Restarting
}

// lived: has been started at some time.
func lived(c container.InspectResponse) bool {
	return c.State != nil && c.State.Status != container.StateCreated
}
