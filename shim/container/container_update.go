package container

import (
	"context"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

// UpdateContainerResources changes the limits of a container. For the engine 0
// means "as before", which is also what the CRI means by it.
func (s *Service) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	m, err := s.find(ctx, r.GetContainerId())
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	if r.GetWindows() != nil {
		return nil, fmt.Errorf("update container %s: %w", m.c.ID, invalid("windows resources for a Linux container"))
	}
	if r.GetLinux() == nil {
		return &runtimeapi.UpdateContainerResourcesResponse{}, nil
	}
	change, err := updatePlan(r.GetLinux(), m)
	if err != nil {
		return nil, fmt.Errorf("update container %s: %w", m.c.ID, err)
	}
	answer, err := s.engine.ContainerUpdate(ctx, m.c.ID, change)
	if err != nil {
		return nil, fmt.Errorf("update container %s: %w", m.c.ID, err)
	}
	for _, warning := range answer.Warnings {
		s.log.Info("the engine warns about an update", "id", m.c.ID, "warning", warning)
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func updatePlan(wanted *runtimeapi.LinuxContainerResources, m member) (container.UpdateConfig, error) {
	if m.c.State.Status == container.StateRemoving || m.c.State.Status == container.StateDead {
		return container.UpdateConfig{}, fmt.Errorf("it is being removed: %w", errdefs.ErrFailedPrecondition)
	}
	if err := fixedLimits(wanted, m); err != nil {
		return container.UpdateConfig{}, err
	}
	resources, err := convert.Resources(wanted)
	if err != nil {
		return container.UpdateConfig{}, err
	}
	// The engine refuses a memory limit above the swap limit that it knows, and
	// a swap limit alone below the memory limit: both always travel together.
	if resources.Memory == 0 && resources.MemorySwap > 0 {
		resources.Memory = m.c.HostConfig.Memory
	}
	return container.UpdateConfig{Resources: resources}, nil
}

// fixedLimits refuses to change what cannot be changed any more. A kubelet
// sends them again with every update, with the values that they have.
func fixedLimits(wanted *runtimeapi.LinuxContainerResources, m member) error {
	if m.c.HostConfig == nil {
		return fmt.Errorf("the engine's answer has no host configuration: %w", errdefs.ErrInternal)
	}
	noted, err := notedLimits(m.c.Config.Labels)
	if err != nil {
		return err
	}
	has := noted.resources()
	if len(wanted.GetUnified()) > 0 && !maps.Equal(wanted.GetUnified(), has.GetUnified()) && !onlyEngineFields(wanted.GetUnified()) {
		return unable("unified resources of an existing container cannot be changed with Docker")
	}
	if len(wanted.GetHugepageLimits()) > 0 && !sameHugepages(wanted.GetHugepageLimits(), has.GetHugepageLimits()) {
		return unable("huge page limits of an existing container cannot be changed with Docker")
	}
	// 0 in the engine stands for a host that forbids what was asked for.
	score, now := wanted.GetOomScoreAdj(), int64(m.c.HostConfig.OomScoreAdj)
	if score != 0 && score != now && (now != 0 || score > 0) {
		return unable("the oom score of an existing container cannot be changed with Docker")
	}
	return nil
}

// onlyEngineFields: nothing is left over once the engine has taken its fields.
func onlyEngineFields(unified map[string]string) bool {
	files, err := convert.CgroupFiles(&runtimeapi.LinuxContainerResources{Unified: unified}, true)
	return err == nil && len(files) == 0
}

func sameHugepages(a, b []*runtimeapi.HugepageLimit) bool {
	limits := func(hs []*runtimeapi.HugepageLimit) map[string]uint64 {
		out := map[string]uint64{}
		for _, h := range hs {
			if h.GetLimit() > 0 {
				out[h.GetPageSize()] = h.GetLimit()
			}
		}
		return out
	}
	return maps.Equal(limits(a), limits(b))
}
