package convert

import (
	"fmt"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is what a container joins: a sandbox, and which of its namespaces are the
// node's.
type Pod struct {
	ID         string
	Namespaces *runtimeapi.NamespaceOption
}

// Namespaces puts a container into its sandbox's namespaces, or into the node's
// where it asks for those; target is the resolved id of the container whose
// processes are to be seen, where one is asked for.
func Namespaces(hc *container.HostConfig, o *runtimeapi.NamespaceOption, pod Pod, target string) error {
	if u := o.GetUsernsOptions(); u != nil && (u.GetMode() != runtimeapi.NamespaceMode_NODE || len(u.GetUids())+len(u.GetGids()) > 0) {
		return fmt.Errorf("the engine has no user namespace per pod: %w", errdefs.ErrNotImplemented)
	}
	join := "container:" + pod.ID
	hc.NetworkMode = container.NetworkMode(join)
	hc.IpcMode = container.IpcMode(join)
	switch o.GetNetwork() {
	case runtimeapi.NamespaceMode_POD:
	case runtimeapi.NamespaceMode_NODE:
		hc.UTSMode = "host"
		if pod.Namespaces.GetNetwork() != runtimeapi.NamespaceMode_NODE {
			hc.NetworkMode = "host"
		}
	default:
		return notHere("network", o.GetNetwork())
	}
	switch o.GetIpc() {
	case runtimeapi.NamespaceMode_POD:
		// The engine lets nobody join a container that has the node's.
		if pod.Namespaces.GetIpc() == runtimeapi.NamespaceMode_NODE {
			hc.IpcMode = "host"
		}
	case runtimeapi.NamespaceMode_NODE:
		hc.IpcMode = "host"
	case runtimeapi.NamespaceMode_CONTAINER:
		hc.IpcMode = "private"
	default:
		return notHere("ipc", o.GetIpc())
	}
	return pidNamespace(hc, o.GetPid(), join, target)
}

func pidNamespace(hc *container.HostConfig, mode runtimeapi.NamespaceMode, join, target string) error {
	switch mode {
	case runtimeapi.NamespaceMode_POD:
		hc.PidMode = container.PidMode(join)
	case runtimeapi.NamespaceMode_CONTAINER:
		hc.PidMode = ""
	case runtimeapi.NamespaceMode_NODE:
		hc.PidMode = "host"
	case runtimeapi.NamespaceMode_TARGET:
		if target == "" {
			return fmt.Errorf("pid namespace TARGET needs a target_id: %w", errdefs.ErrInvalidArgument)
		}
		hc.PidMode = container.PidMode("container:" + target)
	default:
		return notHere("pid", mode)
	}
	return nil
}

func notHere(kind string, mode runtimeapi.NamespaceMode) error {
	return fmt.Errorf("%s namespace mode %s is not possible for a container: %w", kind, mode, errdefs.ErrInvalidArgument)
}

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
