package cni

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/version"

	"github.com/crishim/crishim/shim/network"
)

// Status is an error while no pod can be connected: no configuration, a pod CIDR
// that is still to come, or a plugin that says so itself.
func (p *Plugin) Status(ctx context.Context) error {
	list, err := p.load()
	if err != nil {
		return err
	}
	if wants(list, capRanges) && p.cidr() == "" {
		return fmt.Errorf("cni config needs ipRanges but no PodCIDR set: %w", errdefs.ErrFailedPrecondition)
	}
	if err := p.cni.GetStatusNetworkList(ctx, list); err != nil {
		return fmt.Errorf("CNI network %s: %w", list.Name, err)
	}
	return nil
}

// Usable is an error when the configuration cannot work on this host, because
// there is none or a plugin of it is missing. No plugin is run.
func (p *Plugin) Usable() error {
	list, err := p.load()
	if err != nil {
		return err
	}
	for _, plugin := range list.Plugins {
		if _, err := invoke.FindInPath(plugin.Network.Type, p.options.BinDirs); err != nil {
			return fmt.Errorf("CNI network %s: %w", list.Name, err)
		}
	}
	return nil
}

// checkVersion is the CNI version from which on plugins can check.
const checkVersion = "0.4.0"

// Check asks the plugins whether a pod's network is as they left it. Those of
// older configurations cannot tell.
func (p *Plugin) Check(ctx context.Context, pod network.Pod) error {
	ctx, done, err := p.exclusive(ctx, pod.ID)
	if err != nil {
		return err
	}
	defer done()
	if strings.HasPrefix(pod.NetNS, fmt.Sprintf("/proc/%d/fd/", os.Getpid())) {
		return nil // a descriptor's path is another one each time, and plugins compare it
	}
	attachments, err := p.cni.GetCachedAttachments(pod.ID)
	if err != nil {
		return fmt.Errorf("CNI cache: %w", err)
	}
	for _, a := range attachments {
		list, err := attachmentList(a)
		if err != nil {
			return err
		}
		if able, err := version.GreaterThanOrEqualTo(list.CNIVersion, checkVersion); err != nil || !able {
			continue
		}
		rt := &libcni.RuntimeConf{ContainerID: a.ContainerID, NetNS: pod.NetNS, IfName: a.IfName, Args: a.CniArgs, CapabilityArgs: a.CapabilityArgs}
		if err := p.cni.CheckNetworkList(ctx, list, rt); err != nil {
			return fmt.Errorf("CNI network %s: %w", list.Name, err)
		}
	}
	return nil
}
