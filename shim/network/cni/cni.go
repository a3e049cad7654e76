// Package cni connects pods through CNI plugins.
//
// The only state is libcni's own cache, which has the pod's addresses and the configuration
// that it was set up with. The pods of dockershim and cri-dockerd are in the same cache.
package cni

import (
	"cmp"
	"log/slog"
	"sync/atomic"

	"github.com/containernetworking/cni/libcni"

	"github.com/crishim/crishim/shim/internal/keylock"
	"github.com/crishim/crishim/shim/network"
)

// ifName is the pod's interface; every kubelet expects this one.
const ifName = "eth0"

// Options configure a Plugin.
type Options struct {
	ConfDir  string   // "": /etc/cni/net.d
	BinDirs  []string // empty: where distributions install plugins
	CacheDir string   // "": /var/lib/cni/cache
	PodCIDR  string   // comma separated; SetPodCIDR may set it later
	Kubenet  *Kubenet // makes the configuration instead of reading it from ConfDir
	Log      *slog.Logger
}

// Plugin is the network plugin "cni".
type Plugin struct {
	options Options
	cni     *libcni.CNIConfig
	pods    keylock.Lock // by sandbox id
	podCIDR atomic.Pointer[string]
}

var _ network.Plugin = (*Plugin)(nil)

// New builds the plugin. Configurations are read at each use, so they
// may come, change and go at any time. The defaults are dockershim's.
func New(o Options) *Plugin {
	o.ConfDir, o.CacheDir = cmp.Or(o.ConfDir, "/etc/cni/net.d"), cmp.Or(o.CacheDir, "/var/lib/cni/cache")
	if len(o.BinDirs) == 0 {
		o.BinDirs = []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"}
	}
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	p := &Plugin{options: o, cni: libcni.NewCNIConfigWithCacheDir(o.BinDirs, o.CacheDir, &starter{})}
	p.SetPodCIDR(o.PodCIDR)
	return p
}

// SetPodCIDR sets the range of the pods' addresses, once: running pods have theirs from it.
func (p *Plugin) SetPodCIDR(cidr string) {
	if cidr != "" {
		p.podCIDR.CompareAndSwap(nil, &cidr)
	}
}

func (p *Plugin) cidr() string {
	if cidr := p.podCIDR.Load(); cidr != nil {
		return *cidr
	}
	return ""
}

func (p *Plugin) ConfDir() string { return p.options.ConfDir }

func (p *Plugin) BinDirs() []string { return p.options.BinDirs }

func (p *Plugin) Name() string { return network.NameCNI }

// Mode lets the engine create a network namespace with a loopback interface only.
func (p *Plugin) Mode() string { return "none" }

// Publishes is false: the portmap plugin publishes ports.
func (p *Plugin) Publishes() bool { return false }
