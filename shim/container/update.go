package container

import (
	"context"
	"fmt"
	"maps"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/state"
)

// UpdateContainerResources changes the limits of a container. For the engine 0
// means "as before", which is also what the CRI means by it.
func (s *Service) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	m, err := state.FindContainer(ctx, s.engine, r.GetContainerId())
	if err != nil {
		return nil, fmt.Errorf("update: %w", err)
	}
	if r.GetWindows() != nil {
		return nil, fmt.Errorf("update container %s: %w", m.Detail.ID, invalid("windows resources for a Linux container"))
	}
	if r.GetLinux() == nil {
		return &runtimeapi.UpdateContainerResourcesResponse{}, nil
	}
	if err := s.update(ctx, r.GetLinux(), m); err != nil {
		return nil, fmt.Errorf("update container %s: %w", m.Detail.ID, err)
	}
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (s *Service) update(ctx context.Context, wanted *runtimeapi.LinuxContainerResources, m state.FoundContainer) error {
	if m.Detail.State.Status == container.StateRemoving || m.Detail.State.Status == container.StateDead {
		return fmt.Errorf("it is being removed: %w", errdefs.ErrFailedPrecondition)
	}
	wanted = convert.WithMemory(wanted, m.Detail.HostConfig)
	if err := checkFixedLimits(wanted, m); err != nil {
		return err
	}
	resources, err := convert.Resources(wanted)
	if err != nil {
		return err
	}
	answer, err := s.engine.ContainerUpdate(ctx, m.Detail.ID, container.UpdateConfig{Resources: resources})
	if err != nil {
		return err
	}
	return s.checkWarnings(answer.Warnings, resources, m.Detail.ID)
}

// checkFixedLimits refuses to change what cannot be changed any more. A kubelet
// sends them again with every update, with the values that they have.
func checkFixedLimits(wanted *runtimeapi.LinuxContainerResources, m state.FoundContainer) error {
	has, err := readLimits(m.Limits)
	if err != nil {
		return err
	}
	files, err := convert.CgroupFiles(&runtimeapi.LinuxContainerResources{
		Unified: wanted.GetUnified(), MemoryLimitInBytes: wanted.GetMemoryLimitInBytes(),
	}, true)
	if err != nil {
		return err
	}
	for name, value := range files {
		if has.Unified[name] != value {
			return unable("the unified resource %s of an existing container cannot be changed with Docker", name)
		}
	}
	pages := func(limits []*runtimeapi.HugepageLimit) map[string]uint64 {
		out := map[string]uint64{}
		for _, l := range limits {
			if l.GetLimit() > 0 {
				out[l.GetPageSize()] = l.GetLimit()
			}
		}
		return out
	}
	if len(wanted.GetHugepageLimits()) > 0 && !maps.Equal(pages(wanted.GetHugepageLimits()), pages(has.Hugepages)) {
		return unable("huge page limits of an existing container cannot be changed with Docker")
	}
	// 0 in the engine stands for a host that forbids what was asked for.
	score, now := wanted.GetOomScoreAdj(), int64(m.Detail.HostConfig.OomScoreAdj)
	if score != 0 && score != now && (now != 0 || score > 0) {
		return unable("the oom score of an existing container cannot be changed with Docker")
	}
	return nil
}
