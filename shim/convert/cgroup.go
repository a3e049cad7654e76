package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
)

// CgroupParent is the engine's form of a CRI cgroup parent, which is always
// written the cgroupfs way. The systemd driver takes the slice's own name. A
// parent with ".." in it would lead out of the tree that the kubelet watches.
func CgroupParent(parent, driver string) (string, error) {
	if slices.Contains(strings.Split(parent, "/"), "..") || strings.ContainsRune(parent, 0) {
		return "", fmt.Errorf("cgroup parent %q leads out of its tree: %w", parent, errdefs.ErrInvalidArgument)
	}
	if parent == "" || driver != "systemd" {
		return parent, nil
	}
	slice := path.Base(parent)
	if !strings.HasSuffix(slice, ".slice") {
		return "", fmt.Errorf("cgroup parent %q: the engine uses the systemd cgroup driver, so it must end in .slice: %w",
			parent, errdefs.ErrInvalidArgument)
	}
	return slice, nil
}
