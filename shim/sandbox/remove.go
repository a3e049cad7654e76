package sandbox

import (
	"context"
	"errors"
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

// RemovePodSandbox removes the pod's containers and the sandbox, running or
// not. A sandbox that is gone is fine. While something of the pod could not be
// freed the sandbox stays, because its labels are the only record of it.
func (s *Service) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	b, err := state.FindSandbox(ctx, s.engine, r.GetPodSandboxId())
	switch {
	case errdefs.IsNotFound(err):
		err = s.eachContainer(ctx, r.GetPodSandboxId(), true, s.containers.Remove)
	case err == nil:
		err = errors.Join(s.eachContainer(ctx, b.Detail.ID, true, s.containers.Remove), s.tearDown(ctx, b))
		if err == nil {
			err = lifecycle.Remove(ctx, s.engine, b.Detail.ID)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("remove pod sandbox %s: %w", r.GetPodSandboxId(), err)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}
