package container

import (
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

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

// within says whether a path, where there is one, is relative and leads to
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
