package container

import (
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

// CreateContainer creates a container in a running sandbox.
func (s *Service) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	if err := validate(r); err != nil {
		return nil, fmt.Errorf("create container: %w", err)
	}
	made, done := s.pending.begin(r)
	defer done()
	id, err := s.create(ctx, r, made)
	if err != nil {
		return nil, fmt.Errorf("create container %s: %w", r.GetConfig().GetMetadata().GetName(), err)
	}
	return &runtimeapi.CreateContainerResponse{ContainerId: id}, nil
}

// create makes the engine container. One of the same identity that a request at the same
// time has made is somebody's, one that was never started is what an earlier request has
// left. The same name in an older sandbox of the pod is history, which may stay until it is
// collected.
func (s *Service) create(ctx context.Context, r *runtimeapi.CreateContainerRequest, made *string) (string, error) {
	f, err := s.gather(ctx, r)
	if err != nil {
		return "", err
	}
	p, err := makePlan(r, f)
	if err != nil {
		return "", err
	}
	unlock, err := s.creating.Lock(ctx, p.Name)
	if err != nil {
		return "", err
	}
	defer unlock()
	created, err := lifecycle.Create(ctx, s.engine, p, func(holder container.InspectResponse) lifecycle.Holder {
		have, ok := state.DecodeContainer(holder.Name, holder.Config.Labels)
		switch {
		case !ok || have.SandboxID != f.pod.Detail.ID || !proto.Equal(have.Metadata, r.GetConfig().GetMetadata()):
			return lifecycle.Stranger
		case holder.State.Status == container.StateCreated && holder.ID != *made:
			return lifecycle.Abandoned
		}
		return lifecycle.Taken
	})
	if err != nil {
		return "", err
	}
	if err := s.checkWarnings(created.Warnings, p.Host.Resources, "id", created.ID); err != nil {
		patient, cancel := lifecycle.CleanupContext(ctx)
		defer cancel()
		return "", errors.Join(err, lifecycle.Remove(patient, s.engine, created.ID))
	}
	*made = created.ID
	return created.ID, nil
}

// pending knows the requests in flight that are for the same container: what one of
// them makes is not taken for what an earlier request has left. The zero value is ready
// to use.
type pending struct {
	mu    sync.Mutex
	byKey map[string]*inFlight
}

type inFlight struct {
	requests int
	made     string // the id; guarded by the lock on the container's name
}

// begin notes a request. It returns where to write what is made, and what ends it.
func (p *pending) begin(r *runtimeapi.CreateContainerRequest) (made *string, done func()) {
	m := r.GetConfig().GetMetadata()
	key := fmt.Sprintf("%s/%s/%d", r.GetPodSandboxId(), m.GetName(), m.GetAttempt())
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byKey == nil {
		p.byKey = map[string]*inFlight{}
	}
	f := p.byKey[key]
	if f == nil {
		f = &inFlight{}
		p.byKey[key] = f
	}
	f.requests++
	return &f.made, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if f.requests--; f.requests == 0 {
			delete(p.byKey, key)
		}
	}
}

// maxName bounds names, of which Kubernetes knows none that is longer.
const maxName = 253

// validate refuses what is wrong whatever the engine and the host are like.
func validate(r *runtimeapi.CreateContainerRequest) error {
	c := r.GetConfig()
	switch {
	case r.GetPodSandboxId() == "":
		return invalid("pod_sandbox_id is empty")
	case c == nil:
		return invalid("config is missing")
	case c.GetMetadata().GetName() == "":
		return invalid("config.metadata.name is empty")
	case len(c.GetMetadata().GetName()) > maxName:
		return invalid("the container's name has %d bytes, more than %d", len(c.GetMetadata().GetName()), maxName)
	case c.GetImage().GetImage() == "":
		return invalid("config.image.image is empty")
	case c.GetWindows() != nil:
		return invalid("config.windows is set, but containers are Linux containers")
	case c.GetWorkingDir() != "" && !path.IsAbs(c.GetWorkingDir()):
		return invalid("working directory %q is not absolute", c.GetWorkingDir())
	case c.GetLogPath() != "" && r.GetSandboxConfig().GetLogDirectory() != "" && !path.IsAbs(r.GetSandboxConfig().GetLogDirectory()):
		return invalid("log directory %q is not absolute", r.GetSandboxConfig().GetLogDirectory())
	case !within(c.GetLogPath()):
		return invalid("log path %q leaves the pod's log directory", c.GetLogPath())
	case strings.ContainsRune(c.GetLogPath(), 0):
		return invalid("log path %q holds a NUL byte", c.GetLogPath())
	}
	if err := validateMounts(c.GetMounts()); err != nil {
		return err
	}
	_, err := convert.Wish(c.GetLinux().GetSecurityContext(), "")
	return err
}

// within reports whether a path, where there is one, is relative and leads to
// something below where it starts.
func within(p string) bool {
	return p == "" || filepath.IsLocal(p) && path.Clean(p) != "."
}

func validateMounts(ms []*runtimeapi.Mount) error {
	for _, m := range ms {
		isImage := m.GetImage().GetImage() != ""
		switch {
		case isImage && m.GetHostPath() != "":
			return invalid("mount %q has both an image and a host path", m.GetContainerPath())
		case isImage && !m.GetReadonly():
			return invalid("mount %q: an image can only be mounted read-only, set readonly", m.GetContainerPath())
		case isImage && m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
			return invalid("mount %q: an image has no mounts that could propagate, leave propagation private", m.GetContainerPath())
		case isImage && m.GetContainerPath() == "":
			return invalid("the mount of image %q has no container path", m.GetImage().GetImage())
		case m.GetImageSubPath() != "" && !isImage:
			return invalid("mount %q has an image_sub_path without an image", m.GetContainerPath())
		case m.GetImageSubPath() != "" && !within(m.GetImageSubPath()):
			return invalid("image_sub_path %q leaves the image", m.GetImageSubPath())
		case !plainName(m.GetImageSubPath()):
			return invalid(`image_sub_path %q has a control character or one of , : \ " in it`, m.GetImageSubPath())
		}
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf(format+": %w", append(args, errdefs.ErrInvalidArgument)...)
}

// checkWarnings reads the engine's warnings. An engine on a host that lacks a part of
// the cgroups drops the limits it cannot set and only warns of it; here that is
// a refusal. Shares are only a weight, which such a host does without.
func (s *Service) checkWarnings(warnings []string, asked container.Resources, about ...any) error {
	for _, w := range warnings {
		switch {
		case strings.Contains(w, "Shares discarded"):
		case strings.Contains(w, "discarded"), strings.Contains(w, "without swap") && asked.MemorySwap != asked.Memory:
			return unable("the engine cannot set a limit that is asked for: %s", strings.TrimSuffix(w, "."))
		}
		s.log.Info("the engine warns about a container", append(about, "warning", w)...)
	}
	return nil
}
