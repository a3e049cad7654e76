package cni

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/invoke"
	types100 "github.com/containernetworking/cni/pkg/types/100"
	"github.com/containernetworking/cni/pkg/version"
	"github.com/containernetworking/plugins/pkg/ns"

	"github.com/crishim/crishim/shim/network"
)

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

func (p *Plugin) Check(ctx context.Context, pod network.Pod) error {
	ctx, done, err := p.exclusive(ctx, pod.ID)
	if err != nil {
		return err
	}
	defer done()
	if strings.HasPrefix(pod.NetNS, fmt.Sprintf("/proc/%d/fd/", os.Getpid())) {
		return nil // plugins compare the namespace's path with its path at set-up, and an open descriptor has another path each time
	}
	attachments, err := p.cni.GetCachedAttachments(pod.ID)
	if err != nil {
		return fmt.Errorf("CNI cache: %w", err)
	}
	for _, a := range attachments {
		list, rt, err := attached(a, pod.NetNS)
		if err != nil {
			return err
		}
		if able, err := version.GreaterThanOrEqualTo(list.CNIVersion, "0.4.0"); err != nil || !able {
			continue // older configurations have no check
		}
		if err := p.cni.CheckNetworkList(ctx, list, rt); err != nil {
			return fmt.Errorf("CNI network %s: %w", list.Name, err)
		}
	}
	return nil
}

// Addresses lists IPv4 first, for tools that use a single address. If this cache lacks the pod, because another shim has
// a cache of its own, the addresses are read in the pod's network namespace.
func (p *Plugin) Addresses(_ context.Context, pod network.Pod) ([]string, error) {
	attachments, err := p.cni.GetCachedAttachments(pod.ID)
	if err != nil {
		return nil, fmt.Errorf("CNI cache: %w", err)
	}
	for _, a := range attachments {
		if a.IfName != ifName {
			continue
		}
		if ips, err := p.cached(a); err == nil && len(ips) > 0 {
			return ordered(ips), nil
		}
	}
	if pod.NetNS == "" {
		return nil, nil
	}
	var ips []net.IP
	err = ns.WithNetNSPath(pod.NetNS, func(ns.NetNS) error {
		iface, err := net.InterfaceByName(ifName)
		if err != nil {
			return err
		}
		addrs, err := iface.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() {
				ips = append(ips, n.IP)
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("addresses in %s: %w", pod.NetNS, err)
	}
	return ordered(ips), nil
}

func (p *Plugin) cached(a *libcni.NetworkAttachment) ([]net.IP, error) {
	list, rt, err := attached(a, "")
	if err != nil {
		return nil, err
	}
	result, err := p.cni.GetNetworkListCachedResult(list, rt)
	if err != nil || result == nil {
		return nil, err
	}
	current, err := types100.NewResultFromResult(result)
	if err != nil {
		return nil, fmt.Errorf("cached result of CNI network %s: %w", a.Network, err)
	}
	var ips []net.IP
	for _, ip := range current.IPs {
		// Addresses of host interfaces do not belong to the pod. An address without an interface does.
		if i := ip.Interface; i == nil || *i >= 0 && *i < len(current.Interfaces) && current.Interfaces[*i].Sandbox != "" {
			ips = append(ips, ip.Address.IP)
		}
	}
	return ips, nil
}

func ordered(ips []net.IP) []string {
	var v4, v6 []string
	for _, ip := range ips {
		if ip.To4() != nil {
			v4 = append(v4, ip.String())
		} else {
			v6 = append(v6, ip.String())
		}
	}
	return append(v4, v6...)
}
