package cni

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
)

const (
	HairpinNone        = "none"
	hairpinVeth        = "hairpin-veth"
	hairpinPromiscuous = "promiscuous-bridge"
)

func CheckHairpin(mode string) error {
	switch mode {
	case "", HairpinNone, hairpinVeth, hairpinPromiscuous:
		return nil
	}
	return fmt.Errorf("invalid hairpin mode %q: must be %s, %s or %s: %w", mode, HairpinNone, hairpinVeth, hairpinPromiscuous, errdefs.ErrInvalidArgument)
}

// Kubenet implements kubenet with the standard plugins. Kubelets once had this network built in.
type Kubenet struct {
	Bridge  string // "": cbr0
	MTU     int    // 0: the kernel's default
	Hairpin string // "": hairpinPromiscuous, as in a kubelet
	// NonMasquerade lists ranges, one per family, towards which pods keep their addresses; "": the pod CIDR.
	NonMasquerade string

	mu sync.Mutex // serializes the check and insertion of iptables rules
}

func (k *Kubenet) list(podCIDR string) (*libcni.NetworkConfigList, error) {
	if podCIDR == "" {
		return nil, fmt.Errorf("cni config uninitialized: kubenet needs a pod CIDR: %w", errdefs.ErrFailedPrecondition)
	}
	routes := []map[string]string{}
	for cidr := range strings.SplitSeq(podCIDR, ",") {
		if strings.Contains(cidr, ":") {
			routes = append(routes, map[string]string{"dst": "::/0"})
		} else {
			routes = append(routes, map[string]string{"dst": "0.0.0.0/0"})
		}
	}
	bridge := map[string]any{
		"type": "bridge", "bridge": cmp.Or(k.Bridge, "cbr0"), "isGateway": true, "ipMasq": k.NonMasquerade == "",
		"hairpinMode": k.Hairpin == hairpinVeth, "promiscMode": cmp.Or(k.Hairpin, hairpinPromiscuous) == hairpinPromiscuous,
		"ipam": map[string]any{"type": "host-local", "ranges": ipRanges(podCIDR), "routes": routes},
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

// masquerade adds an iptables rule per range of the pod CIDR if NonMasquerade is set, as kubelets did. Without
// NonMasquerade the bridge plugin adds its own rules (ipMasq), which can exempt only the pod CIDR.
func (k *Kubenet) masquerade(ctx context.Context, podCIDR string) error {
	if k.NonMasquerade == "" {
		return nil
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for pods := range strings.SplitSeq(podCIDR, ",") {
		pods = strings.TrimSpace(pods)
		program, keep, everything := "iptables", pods, "0.0.0.0/0"
		if strings.Contains(pods, ":") {
			program, everything = "ip6tables", "::/0"
		}
		for cidr := range strings.SplitSeq(k.NonMasquerade, ",") {
			if strings.Contains(cidr, ":") == strings.Contains(pods, ":") {
				keep = cidr
			}
		}
		if keep == everything {
			continue
		}
		rule := []string{"POSTROUTING", "-s", pods, "!", "-d", keep, "-m", "comment", "--comment", "crishim: kubenet",
			"-m", "addrtype", "!", "--dst-type", "LOCAL", "-j", "MASQUERADE"}
		var out []byte
		err := exec.CommandContext(ctx, program, slices.Concat([]string{"-w", "-t", "nat", "-C"}, rule)...).Run()
		if missing := new(exec.ExitError); errors.As(err, &missing) {
			out, err = exec.CommandContext(ctx, program, slices.Concat([]string{"-w", "-t", "nat", "-A"}, rule)...).CombinedOutput()
		}
		if err != nil {
			return fmt.Errorf("masquerade traffic to addresses outside %s: %s: %w: %s", keep, program, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
