package cni

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/network"
)

// Reclaim frees the networks of sandboxes that are no more, of which only the
// cache still knows, or the record of an interrupted set-up, and gives their
// ids. Then plugins that can (CNI 1.1) are told which attachments are left, unless
// the network is shared with somebody whose attachments are in another cache.
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
		gone []string
		errs []error
	)
	for _, id := range slices.Compact(ids) {
		if !exists(id) {
			gone = append(gone, id)
			errs = append(errs, p.TearDown(ctx, network.Pod{ID: id}))
		}
	}
	if !shared {
		errs = append(errs, p.collect(ctx, gone))
	}
	return gone, errors.Join(errs...)
}

// ours leaves out what something else than a shim may have put into the cache.
func ours(a *libcni.NetworkAttachment) bool {
	for _, arg := range a.CniArgs {
		if arg[0] == "K8S_POD_INFRA_CONTAINER_ID" {
			return arg[1] == a.ContainerID
		}
	}
	return false
}

// collect takes what the cache has for all that there is, but for what is gone.
// So it lets set-ups be, which are not in the cache before their end: while one is
// under way it leaves the garbage for another time.
func (p *Plugin) collect(ctx context.Context, gone []string) error {
	list, err := p.load()
	if err != nil {
		return nil //nolint:nilerr // no network, nothing to collect
	}
	gate, err := p.gate(ctx, unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("collect garbage of CNI network %s: %w", list.Name, err)
	}
	defer gate.Close()
	attachments, err := p.cni.GetCachedAttachments("")
	if err != nil {
		return fmt.Errorf("CNI cache: %w", err)
	}
	valid := []types.GCAttachment{}
	for _, a := range attachments {
		if a.Network == list.Name && !slices.Contains(gone, a.ContainerID) {
			valid = append(valid, types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
		}
	}
	if err := p.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("collect garbage of CNI network %s: %w", list.Name, err)
	}
	return nil
}
