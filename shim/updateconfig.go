package shim

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// UpdateRuntimeConfig takes the pod CIDR that the node was given. The first one
// stays, because pods have addresses of it.
func (n *node) UpdateRuntimeConfig(_ context.Context, r *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	podCIDR := r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr()
	if podCIDR == "" {
		return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
	}
	for cidr := range strings.SplitSeq(podCIDR, ",") {
		if _, err := netip.ParsePrefix(strings.TrimSpace(cidr)); err != nil {
			return nil, fmt.Errorf("pod CIDR %q: %w: %w", podCIDR, err, errdefs.ErrInvalidArgument)
		}
	}
	if n.networks.cni != nil {
		n.networks.cni.SetPodCIDR(podCIDR)
	}
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}
