package network

import "context"

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
