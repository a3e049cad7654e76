package shim

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
)

// node answers the RPCs about the runtime as a whole.
type node struct {
	engine     nodeEngine
	networks   networks
	pauseImage string
	driver     string // the cgroup driver that the kubelet uses; "" where nobody said
}

// nodeEngine is what node needs of the Docker client.
type nodeEngine interface {
	ServerVersion(ctx context.Context) (types.Version, error)
	Info(ctx context.Context) (system.Info, error)
}

func (n *node) info(ctx context.Context) (system.Info, error) {
	info, err := n.engine.Info(ctx)
	if err != nil {
		return info, fmt.Errorf("ask the docker engine about itself: %w", err)
	}
	return info, nil
}
