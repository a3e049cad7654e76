package shim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
)

// node answers the RPCs about the runtime as a whole.
type node struct {
	engine     nodeEngine
	networks   networks
	pauseImage string
	driver     string // the cgroup driver that the kubelet uses; "" where nobody said
	stays      bool   // a shim that is there without an engine, too
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

// patience is how long to wait for an engine that may not answer at all. A shim
// that stays has something to say about that, and needs some of the client's time
// for it.
func (n *node) patience(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if !n.stays {
		return context.WithCancel(ctx)
	}
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/2)
	}
	return context.WithTimeoutCause(ctx, most, errSilent)
}

var errSilent = errors.New("the docker engine does not answer")
