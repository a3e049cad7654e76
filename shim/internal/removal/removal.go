// Package removal waits for a container that somebody else removes already.
package removal

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// interval is how often to look, and idleLooks how often nobody may be seen to
// remove the container: for a moment at the end of a removal the engine shows a
// container that is not being removed any more and is not gone yet.
const (
	interval  = 50 * time.Millisecond
	idleLooks = 3
)

// Engine is what this package asks of the Docker client.
type Engine interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
}

// Await waits until a container is gone, and gives up with the first error, the
// engine's word that it is being removed, when it stays without anybody
// removing it: the other removal failed, and nothing has been removed.
func Await(ctx context.Context, engine Engine, id string, first error) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for idle := 0; ; {
		c, err := engine.ContainerInspect(ctx, id)
		switch {
		case errdefs.IsNotFound(err):
			return nil
		case err != nil:
			return fmt.Errorf("remove container %s: %w", id, err)
		case c.ContainerJSONBase != nil && c.State != nil && c.State.Status == container.StateRemoving:
			idle = 0
		default:
			if idle++; idle == idleLooks {
				return fmt.Errorf("remove container %s: %w", id, first)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("remove container %s: %w", id, ctx.Err())
		case <-tick.C:
		}
	}
}
