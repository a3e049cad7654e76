package sandbox

import (
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/host"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/state"
)

// box is a sandbox as the engine shows it in detail.
type box struct {
	state.Sandbox
	c       container.InspectResponse
	created int64 // nanoseconds since 1970
}

// fromInspect reads a sandbox. A container that is none is not found, as far as
// the sandbox RPCs are concerned.
func fromInspect(c container.InspectResponse) (box, error) {
	decoded, ok := decode(c)
	if !ok || c.State == nil || c.HostConfig == nil {
		return box{}, fmt.Errorf("container %s is not a pod sandbox: %w", c.Name, errdefs.ErrNotFound)
	}
	b := box{Sandbox: decoded, c: c, created: decoded.Created.UnixNano()}
	if decoded.Created.IsZero() {
		created, err := convert.UnixNano(c.Created)
		if err != nil {
			return box{}, fmt.Errorf("pod sandbox %s: %w", c.ID, err)
		}
		b.created = created
	}
	return b, nil
}

func (b box) running() bool { return b.c.State.Running }

func (b box) state() runtimeapi.PodSandboxState {
	if b.running() {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

// pod is what a network plugin is told. The path of the namespace is good until
// done is called.
func (b box) pod() (p podnetwork.Pod, done func()) {
	done = func() {}
	p = podnetwork.Pod{
		ID:          b.c.ID,
		Metadata:    b.Metadata,
		Annotations: b.Annotations,
		Ports:       b.Ports,
		Engine:      b.addresses(),
	}
	if b.running() && b.c.NetworkSettings != nil {
		p.NetNS, done = host.NetNS(b.c.ID, b.c.NetworkSettings.SandboxKey, b.c.State.Pid)
	}
	return p, done
}

// addresses are those on the engine's networks, IPv4 first. The fields outside
// Networks are gone from newer engines.
func (b box) addresses() []string {
	if b.c.NetworkSettings == nil {
		return nil
	}
	var v4, v6 []string
	for _, n := range b.c.NetworkSettings.Networks {
		if n == nil {
			continue
		}
		if n.IPAddress != "" {
			v4 = append(v4, n.IPAddress)
		}
		if n.GlobalIPv6Address != "" {
			v6 = append(v6, n.GlobalIPv6Address)
		}
	}
	slices.Sort(v4)
	slices.Sort(v6)
	return append(v4, v6...)
}

func (b box) namespaces() *runtimeapi.NamespaceOption {
	o := &runtimeapi.NamespaceOption{Pid: b.PID}
	if b.c.HostConfig.NetworkMode.IsHost() {
		o.Network = runtimeapi.NamespaceMode_NODE
	}
	if b.c.HostConfig.IpcMode.IsHost() {
		o.Ipc = runtimeapi.NamespaceMode_NODE
	}
	if b.c.HostConfig.PidMode.IsHost() {
		o.Pid = runtimeapi.NamespaceMode_NODE
	}
	return o
}
