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

const (
	pluginAuto    = ""
	PluginCNI     = "cni"
	PluginKubenet = "kubenet"
	PluginBridge  = "bridge"
)

// NetworkOptions correspond to dockershim's NetworkPluginSettings.
type NetworkOptions struct {
	// Plugin is PluginCNI, PluginKubenet, PluginBridge or "". With "" a daemon uses CNI if it is usable, otherwise the
	// bridge. A shim for one command uses the bridge, because it must not depend on other tools' configuration.
	Plugin   string
	ConfDir  string   // CNI configurations; "": /etc/cni/net.d
	BinDirs  []string // CNI plugins; empty: the usual directories of distributions
	CacheDir string   // libcni's cache; "": /var/lib/cni/cache
	PodCIDR  string   // comma separated; a kubelet may set it later
	MTU      int      // MTU of kubenet's bridge; 0: the kernel's default
	Hairpin  string   // mode in which a pod reaches itself: none, hairpin-veth, promiscuous-bridge

	NonMasqueradeCIDR string // destination ranges for which kubenet does not masquerade pod traffic, comma separated; "": the pod CIDR
}

// newNetworks checks the network options and determines the plugin of new pods. It changes nothing on the host.
// dockershim's counterparts are ProbeNetworkPlugins, InitNetworkPlugin and effectiveHairpinMode.
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
	case pluginAuto:
		n.Default = bridge
		if !o.Daemon {
			break
		}
		n.Choose = func(context.Context) network.Plugin {
			// A CNI plugin enters the pods' network namespaces, so it must run as root on the engine's host.
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
		return node.Networks{}, fmt.Errorf("invalid network plugin %q: must be %s, %s or %s: %w",
			o.Network.Plugin, PluginCNI, PluginKubenet, PluginBridge, errdefs.ErrInvalidArgument)
	}
	return n, nil
}
