package container

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/ocierror"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/internal/logdir"
	"github.com/crishim/crishim/shim/state"
)

// StartContainer refuses a container that has ended, because in CRI each attempt is a new container. It succeeds for a
// running container.
func (s *Service) StartContainer(ctx context.Context, r *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	m, err := state.FindContainer(ctx, s.Engine, r.GetContainerId())
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	switch {
	case m.Running():
		return &runtimeapi.StartContainerResponse{}, nil
	case m.Lived():
		return nil, fmt.Errorf("start container %s (%.13s): it has run and is %s; create a new one: %w",
			m.Metadata.GetName(), m.Detail.ID, m.Detail.State.Status, errdefs.ErrFailedPrecondition)
	}
	// The engine completes a start even if the request is cancelled. The limits and the log must be set up in that case,
	// too.
	ctx, cancel := lifecycle.CleanupContext(ctx)
	defer cancel()
	if err := s.start(ctx, m); err != nil {
		return nil, fmt.Errorf("start container %s (%.13s): %w", m.Metadata.GetName(), m.Detail.ID, err)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (s *Service) start(ctx context.Context, m state.FoundContainer) error {
	if m.LogPath != "" {
		defer s.Logs.Starting(m.Detail.ID, logdir.Of(m.Container))()
	}
	if err := s.Engine.ContainerStart(ctx, m.Detail.ID, container.StartOptions{}); err != nil {
		return startError(err, m.Detail.HostConfig.Privileged)
	}
	if err := s.applyLimits(ctx, m); err != nil {
		// A container must not run without its limits.
		cleanup, cancel := lifecycle.CleanupContext(ctx)
		defer cancel()
		return errors.Join(err, lifecycle.Stop(cleanup, s.Engine, m.Detail.ID, 0))
	}
	if m.LogPath == "" {
		return nil
	}
	c, err := s.Engine.ContainerInspect(ctx, m.Detail.ID) // the engine sets the log file's name at the start
	if err == nil {
		err = s.Logs.Started(ctx, c.ID, logdir.Of(m.Container), c.LogPath)
	}
	if err != nil {
		// The request succeeds, because the container runs and its log can still be read from the engine.
		s.Log.Warn("the container's log is not at its path", "id", m.Detail.ID, "path", m.LogPath, "err", err)
	}
	return nil
}

// startError extracts the OCI runtime's message and classifies it. The engine returns 404 for some configuration
// errors, which would read as "no such container".
func startError(err error, privileged bool) error {
	if !ocierror.IsStart(err.Error()) {
		return err
	}
	text := ocierror.Plain(err.Error())
	switch failure := ocierror.Of(text); {
	case failure != ocierror.Unknown && failure != ocierror.DiskFull:
		return fmt.Errorf("%s: %w", text, errdefs.ErrInvalidArgument)
	case privileged && strings.Contains(text, "operation not permitted"):
		text += " (the engine's host does not allow privileged containers)"
	}
	return fmt.Errorf("%s: %w", text, errdefs.ErrUnknown)
}

type limits struct {
	Files     map[string]string           `json:"files"` // in the container's cgroup
	Hugepages []*runtimeapi.HugepageLimit `json:"hugepages,omitempty"`
	Unified   map[string]string           `json:"unified,omitempty"`
}

// readLimits decodes the label. A damaged label is an error only for a start.
func readLimits(label string) (l limits, err error) {
	if label == "" {
		return l, nil
	}
	if err := json.Unmarshal([]byte(label), &l); err != nil {
		return l, fmt.Errorf("label %s: %w", state.LabelOwnLimits, err)
	}
	return l, nil
}

// applyLimits writes the limits in the label state.LabelOwnLimits to the cgroup of a started container.
func (s *Service) applyLimits(ctx context.Context, m state.FoundContainer) error {
	l, err := readLimits(m.Limits)
	if err != nil || len(l.Files) == 0 {
		return err
	}
	c, err := s.Engine.ContainerInspect(ctx, m.Detail.ID)
	if err != nil || !c.State.Running {
		return err // nil if the container has ended
	}
	cgroups, err := host.Cgroups(c.State.Pid, c.ID)
	if err == nil {
		cgroups.TellSystemd(ctx, l.Files)
		err = writeLimits(cgroups, l.Files)
	} else {
		err = fmt.Errorf("the limits %v need the engine's host: %w", slices.Collect(maps.Keys(l.Files)), err)
	}
	if maps.DeleteFunc(l.Files, isDefault); err == nil || len(l.Files) == 0 {
		return nil
	}
	// The process and the cgroup disappear as soon as the container ends, which may have happened already.
	if c, again := s.Engine.ContainerInspect(ctx, m.Detail.ID); again == nil && !c.State.Running {
		return nil
	}
	return err
}

func writeLimits(cgroups host.CgroupDirs, files map[string]string) error {
	var errs []error
	for name, value := range files {
		dir, err := cgroups.Of(name)
		if filepath.Base(name) != name {
			err = invalid("invalid file name %q", name)
		}
		var f *os.File
		if err == nil { // the file is not created, so a missing controller is an error
			f, err = os.OpenFile(filepath.Join(dir, name), os.O_WRONLY|os.O_TRUNC, 0)
		}
		if err == nil {
			_, err = f.WriteString(value)
			err = errors.Join(err, f.Close())
		}
		if err != nil && !isDefault(name, value) {
			errs = append(errs, fmt.Errorf("limit %s=%q: %w", name, value, err))
		}
	}
	return errors.Join(errs...)
}

// isDefault reports whether a kubelet sets this limit by default: no swap, no huge pages of any size, and
// memory.oom.group, with which the OOM killer ends all processes of the container. The container runs even if the host
// does not support such a limit.
func isDefault(name, value string) bool {
	return value == "0" && (strings.HasPrefix(name, "hugetlb.") || name == "memory.swap.max") || value == "1" && name == "memory.oom.group"
}
