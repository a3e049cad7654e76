package shim

import (
	"context"
	"fmt"
	"os"

	"github.com/containerd/errdefs"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/network/cni"
	"github.com/crishim/crishim/shim/node"
)

// Names of network plugins in NetworkOptions.
const (
	PluginAuto    = ""
	PluginCNI     = "cni"
	PluginKubenet = "kubenet"
	PluginBridge  = "bridge"
)

// NetworkOptions are what dockershim had in its NetworkPluginSettings.
type NetworkOptions struct {
	// Plugin is one of the constants. PluginAuto is the bridge for one command, because another tool's configuration
	// must not change what it does, and CNI in a daemon if it is usable.
	Plugin   string
	ConfDir  string   // of CNI configurations; "": /etc/cni/net.d
	BinDirs  []string // of CNI plugins; empty: where distributions put them
	CacheDir string   // of CNI results; "": /var/lib/cni/cache
	PodCIDR  string   // comma separated; a kubelet may set it later
	MTU      int      // of kubenet's bridge; 0: the kernel's
	Hairpin  string   // how a pod reaches itself: none, hairpin-veth, promiscuous-bridge

	NonMasqueradeCIDR string // to where kubenet's pods keep their addresses, comma separated; "": the pod CIDR
}

// newNetworks is dockershim's ProbeNetworkPlugins, InitNetworkPlugin and effectiveHairpinMode.
func newNetworks(o Options, engine docker.Endpoint) (node.Networks, error) {
	if err := cni.CheckHairpin(o.Network.Hairpin); err != nil {
		return node.Networks{}, err
	}
	hairpin := o.Network.Hairpin != "" && o.Network.Hairpin != cni.HairpinNone
	if hairpin && !engine.IsLocal() {
		return node.Networks{}, fmt.Errorf("hairpin mode %s is set on the engine's host, and %s is another one: %w", o.Network.Hairpin, engine.Host, errdefs.ErrInvalidArgument)
	}
	options := cni.Options{
		ConfDir: o.Network.ConfDir, BinDirs: o.Network.BinDirs, CacheDir: o.Network.CacheDir, PodCIDR: o.Network.PodCIDR, Log: o.Log,
	}
	if o.Network.Plugin == PluginKubenet {
		options.Kubenet = &cni.Kubenet{MTU: o.Network.MTU, Hairpin: o.Network.Hairpin, NonMasquerade: o.Network.NonMasqueradeCIDR}
	}
	plugin := cni.New(options)
	n := node.Networks{CNI: plugin, Kubenet: options.Kubenet != nil, Plugins: network.Plugins{Others: []network.Plugin{plugin}}}
	bridge := network.Bridge{Hairpin: hairpin}
	switch o.Network.Plugin {
	case PluginAuto:
		n.Default = bridge
		if !o.Daemon {
			break
		}
		n.Choose = func(context.Context) network.Plugin {
			// Only root can reach the pods' network namespaces, and only on the engine's own host.
			if os.Geteuid() == 0 && engine.IsLocal() && plugin.Usable() == nil {
				return plugin
			}
			return bridge
		}
	case PluginCNI, PluginKubenet:
		n.Default = plugin
	case PluginBridge:
		n.Default = bridge
	default:
		return node.Networks{}, fmt.Errorf("network plugin %q is none of %s, %s, %s: %w",
			o.Network.Plugin, PluginCNI, PluginKubenet, PluginBridge, errdefs.ErrInvalidArgument)
	}
	return n, nil
}
