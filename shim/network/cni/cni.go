// Package cni connects pods through CNI plugins.
//
// Its only state is libcni's cache and, in the same directory, the lock files of failed or interrupted changes (podLock).
// The cache has each pod's addresses and the configuration of its set-up. dockershim and cri-dockerd use the same cache.
package cni

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/internal/keylock"
	"github.com/crishim/crishim/shim/network"
)

const ifName = "eth0"

type Options struct {
	ConfDir  string   // "": /etc/cni/net.d
	BinDirs  []string // empty: the usual directories of distributions
	CacheDir string   // "": /var/lib/cni/cache
	PodCIDR  string   // comma separated; SetPodCIDR may set it later
	Kubenet  *Kubenet // generates the configuration; nil: read it from ConfDir
	Log      *slog.Logger
}

type Plugin struct {
	options Options
	cni     *libcni.CNIConfig
	pods    keylock.Lock // by sandbox id
	podCIDR atomic.Pointer[string]
}

var _ network.Plugin = (*Plugin)(nil)

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

// SetPodCIDR sets the range of pod addresses. Later calls are ignored, because running pods have addresses in the
// range.
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

func (p *Plugin) Mode() string { return "none" }

func (p *Plugin) Publishes() bool { return false }

// SetUp does not clean up after a failure; TearDown does.
func (p *Plugin) SetUp(ctx context.Context, pod network.Pod) (err error) {
	if pod.NetNS == "" {
		return fmt.Errorf("the network namespace of pod sandbox %s is not on this host, so CNI cannot set it up: %w", pod.ID, errdefs.ErrFailedPrecondition)
	}
	list, err := p.load()
	if err != nil {
		return err
	}
	rt, err := p.runtimeConf(pod)
	if err != nil {
		return err
	}
	ctx, l, err := p.lock(ctx, pod.ID)
	if err != nil {
		return err
	}
	defer func() { l.unlock(err == nil) }()
	gc, err := p.gcLock(ctx, unix.LOCK_SH)
	if err != nil {
		p.options.Log.Warn("the network of a new pod sandbox is not locked against garbage collection", "id", pod.ID, "err", err)
	}
	defer gc.Close()
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the garbage collection of CNI network %s: %w", list.Name, ctx.Err())
	}
	if p.options.Kubenet != nil {
		if err := p.options.Kubenet.masquerade(ctx, p.cidr()); err != nil {
			return err
		}
	}
	if _, err = l.AddNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("CNI network %s: %w", list.Name, err)
	}
	return nil
}

// TearDown deletes each attachment in the cache with the configuration that created it. It can be repeated. If the
// cache has none, a set-up may have been interrupted, so the current configuration is used.
func (p *Plugin) TearDown(ctx context.Context, pod network.Pod) (err error) {
	ctx, l, err := p.lock(ctx, pod.ID)
	if err != nil {
		return err
	}
	defer func() { l.unlock(err == nil) }()
	attachments, err := p.cni.GetCachedAttachments(pod.ID)
	if err != nil {
		return fmt.Errorf("CNI cache: %w", err)
	}
	if len(attachments) == 0 {
		list, err := p.load()
		if err != nil {
			p.options.Log.Info("a pod sandbox has no CNI attachment and there is no configuration to delete it with", "id", pod.ID)
			return nil
		}
		rt, err := p.runtimeConf(pod)
		if err != nil {
			return err
		}
		return del(ctx, l, list, rt)
	}
	var errs []error
	for _, a := range attachments {
		list, rt, err := attached(a, pod.NetNS)
		if err == nil {
			err = del(ctx, l, list, rt)
		}
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// libcni does not report that it failed to delete its cache entry, for example on a read-only disk. Plugins may then
	// have failed to release addresses without an error too. A remaining entry is therefore deleted here, and a failure
	// to delete it is returned.
	if attachments, err = p.cni.GetCachedAttachments(pod.ID); err != nil {
		return fmt.Errorf("CNI cache: %w", err)
	}
	for _, a := range attachments {
		err := os.Remove(filepath.Join(p.options.CacheDir, "results", a.Network+"-"+a.ContainerID+"-"+a.IfName))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("CNI cache: %w", err))
		}
	}
	return errors.Join(errs...)
}

func attached(a *libcni.NetworkAttachment, netns string) (*libcni.NetworkConfigList, *libcni.RuntimeConf, error) {
	list, err := libcni.NetworkConfFromBytes(a.Config)
	if err != nil {
		single, singleErr := libcni.ConfFromBytes(a.Config) //nolint:staticcheck // old caches have single configurations
		if singleErr != nil {
			return nil, nil, fmt.Errorf("configuration of CNI network %s in the cache: %w", a.Network, err)
		}
		if list, err = libcni.ConfListFromConf(single); err != nil { //nolint:staticcheck // the same
			return nil, nil, err
		}
	}
	return list, &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: netns, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}, nil
}

// del retries without the namespace if the namespace is gone.
func del(ctx context.Context, l podLock, list *libcni.NetworkConfigList, rt *libcni.RuntimeConf) error {
	err := l.DelNetworkList(ctx, list, rt)
	if err != nil && rt.NetNS != "" && strings.Contains(err.Error(), "no such file or directory") {
		rt.NetNS = ""
		err = l.DelNetworkList(ctx, list, rt)
	}
	if err != nil {
		return fmt.Errorf("CNI network %s: %w", list.Name, err)
	}
	return nil
}

// Reclaim tears down the networks of sandboxes that no longer exist, and returns the ids for which that succeeded. It
// finds the sandboxes in libcni's cache and in the lock files of interrupted changes. It then calls the plugins' garbage
// collection (CNI 1.1), unless the network is shared with another runtime.
func (p *Plugin) Reclaim(ctx context.Context, exists func(id string) bool, shared bool) ([]string, error) {
	attachments, err := p.cni.GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("CNI cache: %w", err)
	}
	ids, err := p.interrupted()
	if err != nil {
		return nil, err
	}
	for _, a := range attachments {
		if ours(a) {
			ids = append(ids, a.ContainerID)
		}
	}
	slices.Sort(ids)
	var (
		freed []string
		errs  []error
	)
	for _, id := range slices.Compact(ids) {
		if exists(id) {
			continue
		}
		if err := p.TearDown(ctx, network.Pod{ID: id}); err != nil {
			errs = append(errs, err)
		} else {
			freed = append(freed, id)
		}
	}
	if !shared {
		errs = append(errs, p.collect(ctx))
	}
	return freed, errors.Join(errs...)
}

func ours(a *libcni.NetworkAttachment) bool {
	for _, arg := range a.CniArgs {
		if arg[0] == "K8S_POD_INFRA_CONTAINER_ID" {
			return arg[1] == a.ContainerID
		}
	}
	return false
}

// collect calls the plugins' garbage collection. It does nothing while a set-up is in progress, because the cache does
// not have the new network yet. All attachments in the cache are valid: an attachment whose tear-down failed needs
// another DEL with its own configuration, which CNI does not let GC replace.
func (p *Plugin) collect(ctx context.Context) error {
	list, err := p.load()
	if err != nil {
		return nil //nolint:nilerr // no network, nothing to collect
	}
	gc, err := p.gcLock(ctx, unix.LOCK_EX)
	if err != nil {
		return fmt.Errorf("collect garbage of CNI network %s: %w", list.Name, err)
	}
	if gc == nil {
		return nil
	}
	defer gc.Close()
	attachments, err := p.cni.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("CNI cache: %w", err)
	}
	valid := []types.GCAttachment{}
	for _, a := range attachments {
		if a.Network == list.Name {
			valid = append(valid, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	if err := p.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("collect garbage of CNI network %s: %w", list.Name, err)
	}
	return nil
}
