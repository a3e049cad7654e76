package network

import (
	"context"
	"fmt"
)

// Bridge leaves the network to the engine: its default bridge connects the
// sandbox and publishes its ports.
type Bridge struct {
	// Hairpin lets a pod reach itself through its own host port or service
	// where the engine does not run a proxy for that.
	Hairpin bool
}

var _ Plugin = Bridge{}

// Name implements Plugin.
func (Bridge) Name() string { return NameBridge }

// Mode implements Plugin.
func (Bridge) Mode() string { return "default" }

// Publishes implements Plugin.
func (Bridge) Publishes() bool { return true }

// SetUp has only the hairpin to do: the engine connected the sandbox when it
// started.
func (b Bridge) SetUp(_ context.Context, pod Pod) error {
	if !b.Hairpin || pod.NetNS == "" {
		return nil
	}
	peer, err := peerIndex(pod.NetNS, "eth0")
	if err == nil {
		err = setHairpin("/", peer)
	}
	if err != nil {
		return fmt.Errorf("hairpin mode: %w", err)
	}
	return nil
}

// TearDown has nothing to do: the engine disconnects what it stops.
func (Bridge) TearDown(context.Context, Pod) error { return nil }

// Addresses are those that the engine gave.
func (Bridge) Addresses(_ context.Context, pod Pod) ([]string, error) { return pod.Engine, nil }

// Status is never an error: the bridge is there when the engine is.
func (Bridge) Status(context.Context) error { return nil }
