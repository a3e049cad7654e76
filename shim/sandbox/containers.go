package sandbox

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// engineContainers ends containers with the engine alone. It serves where no
// container area keeps anything beside the engine's container.
type engineContainers struct{ s *Service }

var _ Containers = engineContainers{}

// Kill implements Containers.
func (e engineContainers) Kill(ctx context.Context, id string) error {
	at := 0
	err := e.s.engine.ContainerStop(ctx, id, container.StopOptions{Timeout: &at})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsNotModified(err) {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// Remove implements Containers.
func (e engineContainers) Remove(ctx context.Context, id string) error {
	return e.s.removeContainer(ctx, id)
}
