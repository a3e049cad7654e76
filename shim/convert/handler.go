package convert

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/system"
)

// defaultHandler is a name for the engine's default OCI runtime that kubelets
// configured for dockershim use.
const defaultHandler = "docker"

// RuntimeHandler is the engine's name of the OCI runtime that a CRI runtime
// handler means, "" for its default. The CRI wants unknown ones refused.
func RuntimeHandler(name string, info system.Info) (string, error) {
	if _, known := info.Runtimes[name]; known {
		return name, nil
	}
	if name == "" || name == defaultHandler {
		return "", nil
	}
	return "", fmt.Errorf("runtime handler %q is none of the engine's runtimes: %w", name, errdefs.ErrInvalidArgument)
}
