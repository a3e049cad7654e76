package sandbox

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// UpdatePodSandboxResources takes note that the pod's resources changed. The
// kubelet has changed the pod's cgroup itself by then, and the pause process
// has no limits of its own, so there is nothing to pass on to the engine.
func (s *Service) UpdatePodSandboxResources(ctx context.Context, r *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	b, err := state.FindSandbox(ctx, s.engine, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	s.log.Debug("the resources of a pod sandbox changed", "id", b.Detail.ID)
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, nil
}
