package network

import (
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
)

// Bridge leaves the network to the engine (dockershim: NoopNetworkPlugin): its default bridge
// connects the sandbox when it starts and publishes its ports.
type Bridge struct {
	// Hairpin lets a pod reach itself through its own host port or service
	// where the engine does not run a proxy for that.
	Hairpin bool
}

var _ Plugin = Bridge{}

func (Bridge) Name() string                                           { return NameBridge }
func (Bridge) Mode() string                                           { return "default" }
func (Bridge) Publishes() bool                                        { return true }
func (Bridge) TearDown(context.Context, Pod) error                    { return nil }
func (Bridge) Addresses(_ context.Context, pod Pod) ([]string, error) { return pod.EngineIPs, nil }
func (Bridge) Status(context.Context) error                           { return nil }

// SetUp sets the hairpin mode.
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

// peerIndex returns the index of the other end of a pod's interface. It asks the kernel inside
// the namespace, because /sys there would be the pod's.
func peerIndex(netns, name string) (peer int, err error) {
	err = ns.WithNetNSPath(netns, func(ns.NetNS) error {
		answer, err := syscall.NetlinkRIB(syscall.RTM_GETLINK, syscall.AF_UNSPEC)
		if err != nil {
			return err
		}
		links, err := syscall.ParseNetlinkMessage(answer)
		if err != nil {
			return err
		}
		for i := range links {
			if links[i].Header.Type != syscall.RTM_NEWLINK {
				continue
			}
			attributes, err := syscall.ParseNetlinkRouteAttr(&links[i])
			if err != nil {
				return err
			}
			found, other := "", 0
			for _, a := range attributes {
				switch {
				case a.Attr.Type == syscall.IFLA_IFNAME:
					found = strings.TrimRight(string(a.Value), "\x00")
				case a.Attr.Type == syscall.IFLA_LINK && len(a.Value) == 4:
					other = int(binary.NativeEndian.Uint32(a.Value))
				}
			}
			if found == name && other > 0 {
				peer = other
				return nil
			}
		}
		return fmt.Errorf("%s has none", name)
	})
	if err != nil {
		return 0, fmt.Errorf("the other end of the pod's interface: %w", err)
	}
	return peer, nil
}

// setHairpin lets the bridge send a pod's frames back to the port that they came from: the
// host's interface with this index.
func setHairpin(root string, peer int) error {
	indexes, err := filepath.Glob(filepath.Join(root, "sys/class/net/*/ifindex"))
	if err != nil {
		return fmt.Errorf("interfaces of the host: %w", err)
	}
	for _, file := range indexes {
		index, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(index)) != strconv.Itoa(peer) {
			continue
		}
		return os.WriteFile(filepath.Join(filepath.Dir(file), "brport/hairpin_mode"), []byte("1"), 0o644)
	}
	return fmt.Errorf("interface %d is not on this host", peer)
}
