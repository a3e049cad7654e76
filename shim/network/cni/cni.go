// Package cni connects pods through CNI plugins.
//
// The only record is libcni's own cache of what was set up, so nothing has to be
// asked of a pod to tell its addresses, and a pod is torn down with the
// configuration that it was set up with. Pods that dockershim and cri-dockerd
// set up are in the same cache.
package cni

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/crishim/crishim/shim/internal/keylock"
	"github.com/crishim/crishim/shim/network"
)

// Defaults are those of dockershim and cri-dockerd, and where distributions
// put the plugins.
const (
	DefaultConfDir  = "/etc/cni/net.d"
	DefaultCacheDir = "/var/lib/cni/cache"
)

// DefaultBinDirs are searched in this order.
func DefaultBinDirs() []string { return []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"} }

// callTime bounds the plugins of one pod, as in dockershim.
const callTime = 220 * time.Second

// ifName is the pod's interface; every kubelet expects this one.
const ifName = "eth0"

// Options configure a Plugin.
type Options struct {
	ConfDir  string   // "": DefaultConfDir
	BinDirs  []string // empty: DefaultBinDirs
	CacheDir string   // "": DefaultCacheDir
	PodCIDR  string   // comma separated; may come later by SetPodCIDR
	Kubenet  *Kubenet // makes the configuration instead of reading it from ConfDir
	Log      *slog.Logger
}

// Plugin is the network plugin "cni".
type Plugin struct {
	options Options
	cni     *libcni.CNIConfig
	pods    keylock.Lock // by sandbox id: set-up and tear-down of one pod never overlap
	podCIDR atomic.Pointer[string]
}

var _ network.Plugin = (*Plugin)(nil)

// New builds the plugin. Configurations are read when they are needed, so they
// may come, change and go at any time.
func New(o Options) *Plugin {
	if o.ConfDir == "" {
		o.ConfDir = DefaultConfDir
	}
	if len(o.BinDirs) == 0 {
		o.BinDirs = DefaultBinDirs()
	}
	if o.CacheDir == "" {
		o.CacheDir = DefaultCacheDir
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Plugin{options: o, cni: libcni.NewCNIConfigWithCacheDir(o.BinDirs, o.CacheDir, &starter{})}
	p.SetPodCIDR(o.PodCIDR)
	return p
}

// SetPodCIDR gives the range that pods' addresses come from. The first one
// counts: the pods that are there have theirs from it.
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

// ConfDir is where configurations are read from.
func (p *Plugin) ConfDir() string { return p.options.ConfDir }

// BinDirs are where plugins are looked for.
func (p *Plugin) BinDirs() []string { return p.options.BinDirs }

// Name implements network.Plugin.
func (p *Plugin) Name() string { return network.NameCNI }

// Mode implements network.Plugin: the engine makes a namespace with nothing
// but a loopback interface, which it also sets up.
func (p *Plugin) Mode() string { return "none" }

// Publishes implements network.Plugin: the portmap plugin does that.
func (p *Plugin) Publishes() bool { return false }

// exclusive waits for other work on the pod and bounds the plugins' time.
func (p *Plugin) exclusive(ctx context.Context, id string) (context.Context, func(), error) {
	free, err := p.pods.Lock(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTime)
	return ctx, func() {
		cancel()
		free()
	}, nil
}
