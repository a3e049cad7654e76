package container

import (
	"context"
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

func (s *Service) UpdateContainerResources(ctx context.Context, r *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	m, err := state.FindContainer(ctx, s.Engine, r.GetContainerId())
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
	resources, err := convert.Resources(wanted)
	if err != nil {
		return err
	}
	if _, err := convert.CgroupFiles(wanted, true); err != nil { // errors that do not depend on the host
		return err
	}
	answer, err := s.Engine.ContainerUpdate(ctx, m.Detail.ID, container.UpdateConfig{Resources: resources})
	if err != nil {
		return err
	}
	if err := s.checkWarnings(answer.Warnings, resources, m.Detail.ID); err != nil {
		return err
	}
	s.updateOthers(wanted, m)
	return nil
}

// updateOthers changes resources that the engine cannot update, as far as the host allows. Kubelets since 1.35 send all
// resources with each change, so an error is logged once and does not fail the request.
func (s *Service) updateOthers(wanted *runtimeapi.LinuxContainerResources, m state.FoundContainer) {
	cannot := func(name string, err error) {
		if err == nil {
			return
		}
		if _, said := s.unchanged.LoadOrStore(name, true); !said {
			s.Log.Warn("a resource of containers cannot be changed", "resource", name, "id", m.Detail.ID, "err", err)
		}
	}
	groups, elsewhere := host.Cgroups(m.Detail.State.Pid, m.Detail.ID) // also set for a container that does not run
	files, err := convert.CgroupFiles(wanted, elsewhere != nil || groups.V2())
	cannot("unified", err)
	has, _ := readLimits(m.Limits) // the status RPC logs the error
	for name, value := range files {
		switch {
		case elsewhere == nil:
			cannot(name, writeLimits(groups, map[string]string{name: value}))
		case has.Files[name] != value && !isDefault(name, value):
			cannot(name, elsewhere)
		}
	}
	const oomScore = "oom_score_adj"
	switch score := s.OOM.Allowed(int(wanted.GetOomScoreAdj())); {
	case score == 0: // unchanged
	case elsewhere == nil:
		cannot(oomScore, groups.SetOOMScore(m.Detail.State.Pid, score))
	case score != m.Detail.HostConfig.OomScoreAdj:
		cannot(oomScore, elsewhere)
	}
}
