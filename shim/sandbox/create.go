package sandbox

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/proto"

	"github.com/crishim/crishim/shim/state"
)

// create makes the engine container and gets past a name that is taken: what an
// earlier request left unstarted is removed, and a stranger keeps its name. A
// sandbox of the same identity that has lived is for the caller to remove.
func (s *Service) create(ctx context.Context, p spec) (string, error) {
	id, err := s.createOnce(ctx, p)
	if !errdefs.IsConflict(err) {
		return id, err
	}
	holder, inspectErr := s.engine.ContainerInspect(ctx, p.name)
	switch {
	case errdefs.IsNotFound(inspectErr):
		// Gone in the meantime; the plain name is free again.
	case inspectErr != nil:
		return "", errors.Join(err, inspectErr)
	case !sameSandbox(holder, p):
		p.name = state.AlternativeName(p.name, rand.Uint32())
	case neverStarted(holder):
		if err := s.removeContainer(ctx, holder.ID); err != nil {
			return "", fmt.Errorf("remove what an earlier request left: %w", err)
		}
	default:
		return "", fmt.Errorf("pod sandbox %s has the same name, namespace, uid and attempt: remove it or raise the attempt: %w",
			holder.ID, errdefs.ErrAlreadyExists)
	}
	return s.createOnce(ctx, p)
}

// createOnce does not give the request's cancellation to the engine: the engine
// would go on creating, and nobody would know the id to remove. The wait has
// its own end instead, and a request that is gone by then is undone.
func (s *Service) createOnce(ctx context.Context, p spec) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	patient, cancel := cleanupContext(ctx)
	defer cancel()
	created, err := s.engine.ContainerCreate(patient, p.config, p.host, nil, nil, p.name)
	if err != nil {
		return "", fmt.Errorf("create the sandbox: %w", err)
	}
	if err := ctx.Err(); err != nil {
		remove := func(ctx context.Context) error { return s.removeContainer(ctx, created.ID) }
		return "", undo{remove}.run(ctx, fmt.Errorf("create the sandbox: %w", err))
	}
	for _, warning := range created.Warnings {
		s.log.Info("the engine warns about a sandbox", "id", created.ID, "warning", warning)
	}
	return created.ID, nil
}

func sameSandbox(holder container.InspectResponse, p spec) bool {
	have, ok := decode(holder)
	want, _ := state.DecodeSandbox(p.name, p.config.Labels)
	return ok && proto.Equal(have.Metadata, want.Metadata)
}

func decode(c container.InspectResponse) (state.Sandbox, bool) {
	if c.Config == nil || c.ContainerJSONBase == nil {
		return state.Sandbox{}, false
	}
	return state.DecodeSandbox(c.Name, c.Config.Labels)
}

func neverStarted(c container.InspectResponse) bool {
	return c.State != nil && c.State.Status == container.StateCreated
}
