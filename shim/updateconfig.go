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
	podCIDR, err := PodCIDR(r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	if err != nil {
		return nil, fmt.Errorf("pod CIDR %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if n.networks.cni != nil {
		n.networks.cni.SetPodCIDR(podCIDR)
	}
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// PodCIDR reads address ranges with commas between them; "" is none. Plugins refuse a
// range that is written with the address of a machine in it, for each pod anew, and
// the first range stays. So it is refused here.
func PodCIDR(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	var ranges []string
	for cidr := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			return "", fmt.Errorf("%q: must be an address range such as 10.244.3.0/24", cidr)
		}
		if prefix != prefix.Masked() {
			return "", fmt.Errorf("%q: the range that this address is in is %s", cidr, prefix.Masked())
		}
		ranges = append(ranges, prefix.String())
	}
	return strings.Join(ranges, ","), nil
}
