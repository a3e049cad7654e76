package cni

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
)

// Hairpin modes: how a pod reaches itself through its service or host port.
const (
	HairpinNone        = "none"
	HairpinVeth        = "hairpin-veth"
	HairpinPromiscuous = "promiscuous-bridge"
)

// CheckHairpin refuses modes that do not exist.
func CheckHairpin(mode string) error {
	switch mode {
	case "", HairpinNone, HairpinVeth, HairpinPromiscuous:
		return nil
	}
	return fmt.Errorf("hairpin mode %q is none of %s, %s, %s: %w", mode, HairpinNone, HairpinVeth, HairpinPromiscuous, errdefs.ErrInvalidArgument)
}

// Kubenet is the network that kubelets once brought along: a bridge with
// addresses from the pod CIDR, made here from the standard plugins.
type Kubenet struct {
	Bridge  string // "": cbr0
	MTU     int    // 0: the kernel's
	Hairpin string
}

// list makes the configuration.
func (k *Kubenet) list(podCIDR string) (*libcni.NetworkConfigList, error) {
	if podCIDR == "" {
		return nil, fmt.Errorf("cni config uninitialized: kubenet needs a pod CIDR: %w", errdefs.ErrFailedPrecondition)
	}
	name := k.Bridge
	if name == "" {
		name = "cbr0"
	}
	var ranges [][]map[string]string
	routes := []map[string]string{}
	for cidr := range strings.SplitSeq(podCIDR, ",") {
		ranges = append(ranges, []map[string]string{{"subnet": strings.TrimSpace(cidr)}})
		if strings.Contains(cidr, ":") {
			routes = append(routes, map[string]string{"dst": "::/0"})
		} else {
			routes = append(routes, map[string]string{"dst": "0.0.0.0/0"})
		}
	}
	bridge := map[string]any{
		"type": "bridge", "bridge": name, "isGateway": true, "ipMasq": true,
		"hairpinMode": k.Hairpin == HairpinVeth, "promiscMode": k.Hairpin == HairpinPromiscuous,
		"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
	}
	if k.MTU > 0 {
		bridge["mtu"] = k.MTU
	}
	b, err := json.Marshal(map[string]any{
		"cniVersion": "1.0.0", "name": "kubenet",
		"plugins": []any{
			bridge,
			map[string]any{"type": "portmap", "snat": true, "capabilities": map[string]bool{"portMappings": true}},
			map[string]any{"type": "bandwidth", "capabilities": map[string]bool{"bandwidth": true}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("kubenet configuration: %w", err)
	}
	return libcni.NetworkConfFromBytes(b)
}
