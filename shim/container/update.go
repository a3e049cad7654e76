package container

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

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
	// An invalid file name fails the request before any change. On a host with cgroup v1, unified limits are logged and
	// do not fail the request, see updateOthers.
	if _, err := convert.CgroupFiles(wanted, true); err != nil {
		return err
	}
	groups, elsewhere := host.Cgroups(m.Detail.State.Pid, m.Detail.ID) // elsewhere is set if the container does not run or its cgroups are not visible here
	before := readFiles(groups, systemdResets)
	answer, err := s.Engine.ContainerUpdate(ctx, m.Detail.ID, container.UpdateConfig{Resources: resources})
	if err != nil {
		return err
	}
	if err := s.checkWarnings(answer.Warnings, resources, m.Detail.ID); err != nil {
		return err
	}
	s.updateOthers(ctx, wanted, m, groups, elsewhere)
	after := readFiles(groups, systemdResets)
	maps.DeleteFunc(before, func(name, value string) bool { return after[name] == value || wanted.GetUnified()[name] != "" })
	if err := writeLimits(groups, before); err != nil {
		s.Log.Warn("the update has reset limits of a container", "id", m.Detail.ID, "err", err)
	}
	return nil
}

// systemdResets are the cgroup v2 files that systemd sets to its own values when it changes another memory limit.
var systemdResets = []string{"memory.oom.group", "memory.min", "memory.low", "memory.high"}

// readFiles reads files of a cgroup of version 2. Files that cannot be read are left out.
func readFiles(groups host.CgroupDirs, names []string) map[string]string {
	files := map[string]string{}
	for _, name := range names {
		if text, err := os.ReadFile(filepath.Join(groups[""], name)); groups.V2() && err == nil {
			files[name] = strings.TrimSpace(string(text))
		}
	}
	return files
}

// updateOthers changes resources that the engine cannot update, as far as the host allows. Kubelets since 1.35 send all
// resources with each change, so an error is logged once and does not fail the request.
func (s *Service) updateOthers(ctx context.Context, wanted *runtimeapi.LinuxContainerResources, m state.FoundContainer, groups host.CgroupDirs, elsewhere error) {
	cannot := func(name string, err error) {
		if err == nil {
			return
		}
		if _, said := s.unchanged.LoadOrStore(name, true); !said {
			s.Log.Warn("a resource of containers cannot be changed", "resource", name, "id", m.Detail.ID, "err", err)
		}
	}
	files, err := convert.CgroupFiles(wanted, elsewhere != nil || groups.V2())
	cannot("unified", err)
	has, _ := readLimits(m.Limits) // the status RPC logs the error
	groups.TellSystemd(ctx, files)
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
	case score == 0: // the score stays: the request has none, or the host forbids it
	case elsewhere == nil:
		cannot(oomScore, groups.SetOOMScore(m.Detail.State.Pid, score))
	case score != m.Detail.HostConfig.OomScoreAdj:
		cannot(oomScore, elsewhere)
	}
}
