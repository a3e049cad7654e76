package shim

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// RuntimeConfig tells the engine's cgroup driver. While the engine is away that is
// the one that it must have to be ready, where somebody said which.
func (n *node) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	asked, cancel := n.patience(ctx, statusTime)
	defer cancel()
	info, err := n.info(asked)
	if err != nil && n.driver != "" && ctx.Err() == nil {
		info.CgroupDriver, err = n.driver, nil
	}
	if err != nil {
		return nil, err
	}
	driver, err := cgroupDriver(info.CgroupDriver)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// cgroupDriver never leaves the answer to the zero value, which means systemd.
func cgroupDriver(engine string) (runtimeapi.CgroupDriver, error) {
	switch engine {
	case "systemd":
		return runtimeapi.CgroupDriver_SYSTEMD, nil
	case "cgroupfs":
		return runtimeapi.CgroupDriver_CGROUPFS, nil
	}
	return 0, fmt.Errorf("the engine's cgroup driver %q is neither systemd nor cgroupfs: %w", engine, errdefs.ErrFailedPrecondition)
}
