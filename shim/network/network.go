// Package network gives pods their network. A Plugin sets up and tears down
// what the engine does not do by itself; Bridge and Host have nothing to do,
// because the engine does all of it.
package network

import (
	"context"
	"time"

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
	// Publishes reports whether the engine is to publish the port mappings.
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

// nameOfMode returns how dockershim and cri-dockerd connected a pod: what is not
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

// Host is for pods that use the network of the node. A kubelet knows the node's
// addresses itself, so the pod has none of its own.
type Host struct{}

var _ Plugin = Host{}

// Name implements Plugin.
func (Host) Name() string { return NameHost }

// Mode implements Plugin.
func (Host) Mode() string { return "host" }

// Publishes is false: every port of the pod is a port of the node.
func (Host) Publishes() bool { return false }

// SetUp has nothing to do.
func (Host) SetUp(context.Context, Pod) error { return nil }

// TearDown has nothing to do.
func (Host) TearDown(context.Context, Pod) error { return nil }

// Addresses is empty.
func (Host) Addresses(context.Context, Pod) ([]string, error) { return nil, nil }

// Status is never an error.
func (Host) Status(context.Context) error { return nil }

// Observe is told of every call to a plugin under the operation's name that
// dockershim's metrics used, how long it took and how it ended.
type Observe func(operation string, took time.Duration, err error)

// Observed are the same plugins, observed.
func (p Plugins) Observed(observe Observe) Plugins {
	out := Plugins{Default: observed{p.Default, observe}}
	if p.Choose != nil {
		out.Choose = func(ctx context.Context) Plugin { return observed{p.Choose(ctx), observe} }
	}
	for _, other := range p.Others {
		out.Others = append(out.Others, observed{other, observe})
	}
	return out
}

type observed struct {
	Plugin
	observe Observe
}

// SetUp implements Plugin.
func (o observed) SetUp(ctx context.Context, pod Pod) error {
	start := time.Now()
	err := o.Plugin.SetUp(ctx, pod)
	o.observe("set_up_pod", time.Since(start), err)
	return err
}

// TearDown implements Plugin.
func (o observed) TearDown(ctx context.Context, pod Pod) error {
	start := time.Now()
	err := o.Plugin.TearDown(ctx, pod)
	o.observe("tear_down_pod", time.Since(start), err)
	return err
}

// Addresses implements Plugin.
func (o observed) Addresses(ctx context.Context, pod Pod) ([]string, error) {
	start := time.Now()
	addresses, err := o.Plugin.Addresses(ctx, pod)
	o.observe("get_pod_network_status", time.Since(start), err)
	return addresses, err
}

// Check implements Checker; a plugin that cannot check finds nothing wrong.
func (o observed) Check(ctx context.Context, pod Pod) error {
	c, ok := o.Plugin.(Checker)
	if !ok {
		return nil
	}
	start := time.Now()
	err := c.Check(ctx, pod)
	o.observe("check_pod", time.Since(start), err)
	return err
}
