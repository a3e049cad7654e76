package cni

import (
	"context"
	"errors"
	"fmt"

	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/types"
)

// Reclaim frees the attachments of sandboxes that are no more, of which only
// the cache still knows, and gives their ids. Then plugins that can (CNI 1.1)
// are told which attachments are left, unless the network is shared with
// somebody whose attachments are in another cache.
func (p *Plugin) Reclaim(ctx context.Context, exists func(id string) bool, shared bool) ([]string, error) {
	attachments, err := p.cni.GetCachedAttachments("")
	if err != nil {
		return nil, fmt.Errorf("CNI cache: %w", err)
	}
	var (
		gone []string
		errs []error
		left = map[string][]types.GCAttachment{}
	)
	for _, a := range attachments {
		if exists(a.ContainerID) || !ours(a) {
			left[a.Network] = append(left[a.Network], types.GCAttachment{ContainerID: a.ContainerID, IfName: a.IfName})
			continue
		}
		gone = append(gone, a.ContainerID)
		errs = append(errs, p.reclaim(ctx, a))
	}
	if !shared {
		errs = append(errs, p.collect(ctx, left))
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

func (p *Plugin) reclaim(ctx context.Context, a *libcni.NetworkAttachment) error {
	ctx, done, err := p.exclusive(ctx, a.ContainerID)
	if err != nil {
		return err
	}
	defer done()
	return p.delAttachment(ctx, a, "")
}

func (p *Plugin) collect(ctx context.Context, left map[string][]types.GCAttachment) error {
	list, err := p.load()
	if err != nil {
		return nil //nolint:nilerr // no network, nothing to collect
	}
	valid := left[list.Name]
	if valid == nil {
		valid = []types.GCAttachment{}
	}
	if err := p.cni.GCNetworkList(ctx, list, &libcni.GCArgs{ValidAttachments: valid}); err != nil {
		return fmt.Errorf("collect garbage of CNI network %s: %w", list.Name, err)
	}
	return nil
}
