// Package network gives pods their network. A Plugin sets up and tears down
// what the engine does not do by itself; Bridge and Host have nothing to do,
// because the engine does all of it.
package network

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Names of plugins as they stand in a sandbox's labels.
const (
	NameBridge = "bridge"
	NameHost   = "host"
	NameCNI    = "cni"
)

// Pod is what a plugin may want to know of a sandbox.
type Pod struct {
	ID          string
	Metadata    *runtimeapi.PodSandboxMetadata
	Annotations map[string]string
	Ports       []*runtimeapi.PortMapping
	NetNS       string   // path of the network namespace, for the length of the call; "" once the sandbox has ended
	Engine      []string // addresses that the engine gave the sandbox
}

// Plugin is one way to connect pods.
type Plugin interface {
	// Name is kept in the sandbox's labels, so that the plugin that set a pod
	// up also tears it down.
	Name() string
	// Mode is the engine's network mode for sandboxes.
	Mode() string
	// Publishes says whether the engine is to publish the port mappings.
	Publishes() bool
	// SetUp connects a sandbox that has just been started.
	SetUp(ctx context.Context, pod Pod) error
	// TearDown undoes SetUp, as often as it is called.
	TearDown(ctx context.Context, pod Pod) error
	// Addresses lists the pod's addresses, its main one first.
	Addresses(ctx context.Context, pod Pod) ([]string, error)
	// Status is an error when no pod can be connected now.
	Status(ctx context.Context) error
}

// Checker is a Plugin that can tell whether a pod's network is as it left it.
type Checker interface {
	Check(ctx context.Context, pod Pod) error
}

// Plugins are the ones a shim has at hand.
type Plugins struct {
	// Default connects new pods.
	Default Plugin
	// Choose, where it is set, picks the plugin of a new pod instead.
	Choose func(ctx context.Context) Plugin
	// Others are for pods that were set up otherwise.
	Others []Plugin
}

// ForNew picks the plugin of a sandbox that is to be made.
func (p Plugins) ForNew(ctx context.Context, host bool) Plugin {
	switch {
	case host:
		return Host{}
	case p.Choose != nil:
		return p.Choose(ctx)
	}
	return p.Default
}

// ForExisting picks the plugin of a sandbox by the name in its labels or, where
// another shim made it, by the engine's network mode.
func (p Plugins) ForExisting(name, mode string) Plugin {
	if name == "" {
		name = nameOfMode(mode)
	}
	if name == p.Default.Name() {
		return p.Default
	}
	for _, other := range p.Others {
		if other.Name() == name {
			return other
		}
	}
	if name == NameHost {
		return Host{}
	}
	return Bridge{}
}

// nameOfMode tells how dockershim and cri-dockerd connected a pod: what is not
// on the host's network and not on one of the engine's went through CNI.
func nameOfMode(mode string) string {
	switch mode {
	case "host":
		return NameHost
	case "none":
		return NameCNI
	}
	return NameBridge
}
