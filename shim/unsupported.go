package shim

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// CheckpointContainer is not possible: the CRI wants one archive, and the
// engine's experimental checkpoints are directories that only it can restore.
func (n *node) CheckpointContainer(context.Context, *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot write a container's checkpoint as an archive: %w", errdefs.ErrNotImplemented)
}

// CheckpointPod is not possible: the engine knows no pods, and has no way to
// stop several containers at one moment.
func (n *node) CheckpointPod(context.Context, *runtimeapi.CheckpointPodRequest) (*runtimeapi.CheckpointPodResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot checkpoint the containers of a pod together: %w", errdefs.ErrNotImplemented)
}

// RestorePod is not possible for the same reason as CheckpointPod.
func (n *node) RestorePod(context.Context, *runtimeapi.RestorePodRequest) (*runtimeapi.RestorePodResponse, error) {
	return nil, fmt.Errorf("the docker engine cannot restore the containers of a pod together: %w", errdefs.ErrNotImplemented)
}
