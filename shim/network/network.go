// Package network connects pods. The plugins Host and Bridge leave almost everything to the engine's own networking.
// The plugin in package cni replaces the engine's networking. Pods in the host's network always use Host.
package network

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/containernetworking/plugins/pkg/ns"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Names of plugins in sandbox labels.
const (
	NameBridge = "bridge"
	nameHost   = "host"
	NameCNI    = "cni"
)

type Pod struct {
	ID          string
	Metadata    *runtimeapi.PodSandboxMetadata
	Annotations map[string]string
	Ports       []*runtimeapi.PortMapping
	NetNS       string   // namespace path, valid during the call; "" if the sandbox has ended or is on another host
	EngineIPs   []string // addresses from the engine
}

type Plugin interface {
	// Name is stored in the sandbox's labels, so that the same plugin tears the pod down.
	Name() string
	Mode() string
	// Publishes reports whether the engine publishes the port mappings.
	Publishes() bool
	// SetUp connects a sandbox that was just started.
	SetUp(ctx context.Context, pod Pod) error
	TearDown(ctx context.Context, pod Pod) error
	// Addresses lists the pod's addresses, primary address first.
	Addresses(ctx context.Context, pod Pod) ([]string, error)
	Status(ctx context.Context) error
}

// Checker is a Plugin that can verify a pod's network.
type Checker interface {
	Check(ctx context.Context, pod Pod) error
}

// Plugins selects the network plugin of a pod (dockershim: PluginManager).
type Plugins struct {
	Default Plugin                           // for new pods
	Choose  func(ctx context.Context) Plugin // replaces Default if set
	Others  []Plugin                         // for existing pods, after Default; Choose may return one of them
}

func (p Plugins) ForNew(ctx context.Context, host bool) Plugin {
	switch {
	case host:
		return Host{}
	case p.Choose != nil:
		return p.Choose(ctx)
	}
	return p.Default
}

// ForExisting returns the plugin with the name in the sandbox's labels. Other shims record no name. The plugin then
// follows from the engine's network mode: "host" is Host, "none" is CNI, and any other mode is Bridge.
func (p Plugins) ForExisting(name, mode string) Plugin {
	if name == "" {
		name = cmp.Or(map[string]string{"host": nameHost, "none": NameCNI}[mode], NameBridge)
	}
	for _, plugin := range append([]Plugin{p.Default}, p.Others...) {
		if plugin.Name() == name {
			return plugin
		}
	}
	if name == nameHost {
		return Host{}
	}
	return Bridge{}
}

// Host is the plugin for pods in the host's network. It reports no addresses, because a kubelet knows the node's addresses.
type Host struct{}

var _ Plugin = Host{}

func (Host) Name() string                                     { return nameHost }
func (Host) Mode() string                                     { return "host" }
func (Host) Publishes() bool                                  { return false } // pods use the node's ports directly
func (Host) SetUp(context.Context, Pod) error                 { return nil }
func (Host) TearDown(context.Context, Pod) error              { return nil }
func (Host) Addresses(context.Context, Pod) ([]string, error) { return nil, nil }
func (Host) Status(context.Context) error                     { return nil }

// Bridge is the plugin for the engine's default bridge (dockershim: NoopNetworkPlugin).
type Bridge struct {
	// Hairpin lets a pod reach itself through its own host port.
	Hairpin bool
}

var _ Plugin = Bridge{}

func (Bridge) Name() string                                           { return NameBridge }
func (Bridge) Mode() string                                           { return "default" }
func (Bridge) Publishes() bool                                        { return true }
func (Bridge) TearDown(context.Context, Pod) error                    { return nil }
func (Bridge) Addresses(_ context.Context, pod Pod) ([]string, error) { return pod.EngineIPs, nil }
func (Bridge) Status(context.Context) error                           { return nil }

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

// peerIndex returns the index of the host's end of a veth pair. It uses netlink in the pod's network namespace, because
// /sys would still show the host's interfaces.
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
