package container

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// CreateContainer creates a container in a running sandbox.
func (s *Service) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	if err := validate(r); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	name := r.GetConfig().GetMetadata().GetName()
	race, leave := s.rivals.enter(r)
	defer leave()
	f, err := s.gather(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", name, err)
	}
	p, err := makePlan(r, f)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", name, err)
	}
	id, err := s.create(ctx, p, race)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", name, err)
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// create makes the engine container and gets past a name that is taken: what an
// earlier request left unstarted is removed, and a stranger keeps its name. One
// that a request at the same time has made is somebody's.
func (s *Service) create(ctx context.Context, p plan, race *race) (id string, err error) {
	unlock, err := s.creating.Lock(ctx, p.name)
	if err != nil {
		return "", err
	}
	defer unlock()
	defer func() {
		if err == nil {
			race.winner = id // guarded by the lock
		}
	}()
	id, err = s.createOnce(ctx, p)
	if !errdefs.IsConflict(err) {
		return id, err
	}
	holder, inspectErr := s.engine.ContainerInspect(ctx, p.name)
	switch {
	case errdefs.IsNotFound(inspectErr):
		// Gone in the meantime; the plain name is free again.
	case inspectErr != nil:
		return "", errors.Join(err, inspectErr)
	case !sameContainer(holder, p):
		p.name = state.AlternativeName(p.name, rand.Uint32())
	case !lived(holder) && holder.ID != race.winner:
		if err := s.remove(ctx, holder.ID); err != nil {
			return "", fmt.Errorf("remove what an earlier request left: %w", err)
		}
	default:
		return "", fmt.Errorf("container %s has the same name and attempt in this pod: remove it or raise the attempt: %w",
			holder.ID, errdefs.ErrAlreadyExists)
	}
	return s.createOnce(ctx, p)
}

// sameContainer: the same container of the same sandbox. The same name in an
// older sandbox of the pod is history, which may stay until it is collected.
func sameContainer(holder container.InspectResponse, p plan) bool {
	if holder.Config == nil || holder.ContainerJSONBase == nil {
		return false
	}
	have, ok := state.DecodeContainer(holder.Name, holder.Config.Labels)
	want, _ := state.DecodeContainer(p.name, p.config.Labels)
	return ok && have.SandboxID == want.SandboxID && proto.Equal(have.Metadata, want.Metadata)
}

// createOnce does not give the request's cancellation to the engine: the engine
// would go on creating, and nobody would know the id to remove. A request that
// is gone by the time of the answer is undone.
func (s *Service) createOnce(ctx context.Context, p plan) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	patient, cancel := cleanupContext(ctx)
	defer cancel()
	created, err := s.engine.ContainerCreate(patient, p.config, p.host, nil, nil, p.name)
	if err != nil {
		return "", err
	}
	if created.ID == "" {
		return "", fmt.Errorf("the engine gave no id: %w", errdefs.ErrInternal)
	}
	if err := ctx.Err(); err != nil {
		return "", errors.Join(err, s.remove(patient, created.ID))
	}
	if err := s.heed(created.Warnings, p.host.Resources, "id", created.ID); err != nil {
		return "", errors.Join(err, s.remove(patient, created.ID))
	}
	return created.ID, nil
}
