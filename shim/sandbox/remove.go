package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/removal"
)

// RemovePodSandbox removes the pod's containers and the sandbox, running or
// not. A sandbox that is gone is fine. While something of the pod could not be
// freed the sandbox stays, because its labels are the only record of it.
func (s *Service) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	if r.GetPodSandboxId() == "" {
		return nil, invalid("the pod sandbox id is empty")
	}
	b, err := s.find(ctx, r.GetPodSandboxId())
	if errdefs.IsNotFound(err) {
		err = s.eachContainer(ctx, r.GetPodSandboxId(), true, s.containers.Remove)
	} else if err == nil {
		err = s.remove(ctx, b)
	}
	if err != nil {
		return nil, fmt.Errorf("remove pod sandbox %s: %w", r.GetPodSandboxId(), err)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (s *Service) remove(ctx context.Context, b box) error {
	if err := errors.Join(s.eachContainer(ctx, b.c.ID, true, s.containers.Remove), s.tearDown(ctx, b)); err != nil {
		return err
	}
	return s.removeContainer(ctx, b.c.ID)
}

// removeContainer removes an engine container by force. One that is gone is
// fine; one that another request is removing is waited for, because that may
// fail: an engine that was restarted can be stuck with it.
func (s *Service) removeContainer(ctx context.Context, id string) error {
	err := s.engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
	switch {
	case err == nil, errdefs.IsNotFound(err):
		return nil
	case errdefs.IsConflict(err):
		return removal.Await(ctx, s.engine, id, err)
	}
	return fmt.Errorf("remove container %s: %w", id, err)
}
