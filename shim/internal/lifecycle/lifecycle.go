// Package lifecycle creates, stops and removes engine containers for both sandboxes and containers. It resolves
// conflicts with concurrent operations on the same container.
package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/state"
)

type Engine interface {
	ContainerCreate(ctx context.Context, config *container.Config, hostConfig *container.HostConfig, networking *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerStop(ctx context.Context, id string, o container.StopOptions) error
	ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
}

type Spec struct {
	Name   string
	Config *container.Config
	Host   *container.HostConfig
}

type Holder int

const (
	Foreign Holder = iota // a different container, for example of an older sandbox; it keeps the name
	Stale                 // left unstarted by an earlier request; it is removed
	InUse                 // the same container, already started or created by a request in flight: a conflict
)

// Create recovers from a name conflict, because kubelets repeat requests whose response they did not receive.
// dockershim's counterpart is recoverFromCreationConflictIfNeeded.
func Create(ctx context.Context, engine Engine, s Spec, judge func(container.InspectResponse) Holder) (container.CreateResponse, error) {
	created, err := createOnce(ctx, engine, s)
	if !errdefs.IsConflict(err) {
		return created, err
	}
	holder, inspectErr := engine.ContainerInspect(ctx, s.Name)
	switch {
	case errdefs.IsNotFound(inspectErr):
		return createOnce(ctx, engine, s) // removed in the meantime
	case inspectErr != nil:
		return created, errors.Join(err, inspectErr)
	}
	switch judge(holder) {
	case Foreign:
		s.Name = state.AlternativeName(s.Name, rand.Uint32())
	case Stale:
		if err := Remove(ctx, engine, holder.ID); err != nil {
			return created, fmt.Errorf("remove what an earlier request left: %w", err)
		}
	default:
		return created, fmt.Errorf("%s exists already with this name and attempt: remove it or raise the attempt: %w", holder.ID, errdefs.ErrAlreadyExists)
	}
	return createOnce(ctx, engine, s)
}

// createOnce ignores cancellation during the call, because the engine would create the container anyway and its id
// would be lost. If the request was cancelled, the container is removed.
func createOnce(ctx context.Context, engine Engine, s Spec) (container.CreateResponse, error) {
	if err := ctx.Err(); err != nil {
		return container.CreateResponse{}, err
	}
	detached, cancel := CleanupContext(ctx)
	defer cancel()
	created, err := engine.ContainerCreate(detached, s.Config, s.Host, nil, nil, s.Name)
	switch {
	case err != nil:
		return created, err
	case created.ID == "":
		return created, fmt.Errorf("the engine's answer has no id: %w", errdefs.ErrInternal)
	case ctx.Err() != nil:
		return created, errors.Join(ctx.Err(), Remove(detached, engine, created.ID))
	}
	return created, nil
}

func Stop(ctx context.Context, engine Engine, id string, seconds int64) error {
	timeout := int(min(seconds, math.MaxInt32))
	err := engine.ContainerStop(ctx, id, container.StopOptions{Timeout: &timeout})
	if err != nil && !errdefs.IsNotFound(err) && !errdefs.IsNotModified(err) {
		return fmt.Errorf("stop container %s: %w", id, err)
	}
	return nil
}

// Remove waits for a concurrent removal, because that may fail.
func Remove(ctx context.Context, engine Engine, id string) error {
	err := engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err): // another request is removing it
		err = awaitRemoval(ctx, engine, id, err)
	}
	if err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	return nil
}

// At the end of a removal the engine briefly reports that the removal is over although the container still exists.
const (
	removalPoll = 50 * time.Millisecond
	idlePolls   = 3
)

// awaitRemoval returns the conflict if the other removal has failed.
func awaitRemoval(ctx context.Context, engine Engine, id string, conflict error) error {
	tick := time.NewTicker(removalPoll)
	defer tick.Stop()
	for idle := 0; ; {
		c, err := engine.ContainerInspect(ctx, id)
		switch {
		case errdefs.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case c.State.Status == container.StateRemoving:
			idle = 0
		default:
			if idle++; idle == idlePolls {
				return conflict
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

const cleanupTimeout = 2 * time.Minute

func CleanupContext(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
}
