package cni

import (
	"fmt"
	"math"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/crishim/crishim/shim/network"
)

// Capabilities that plugins may ask for.
const (
	capPorts     = "portMappings"
	capRanges    = "ipRanges"
	capBandwidth = "bandwidth"
)

// Annotations that bound a pod's traffic, in bits per second.
const (
	annotationIngress = "kubernetes.io/ingress-bandwidth"
	annotationEgress  = "kubernetes.io/egress-bandwidth"
)

// runtimeConf is what plugins are told about a pod. libcni hands a capability
// only to the plugins that asked for it.
func (p *Plugin) runtimeConf(pod network.Pod) (*libcni.RuntimeConf, error) {
	rates, err := bandwidth(pod.Annotations)
	if err != nil {
		return nil, err
	}
	rt := &libcni.RuntimeConf{
		ContainerID: pod.ID,
		NetNS:       pod.NetNS,
		IfName:      ifName,
		Args: [][2]string{
			{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", pod.Metadata.GetNamespace()},
			{"K8S_POD_NAME", pod.Metadata.GetName()},
			{"K8S_POD_INFRA_CONTAINER_ID", pod.ID},
			{"K8S_POD_UID", pod.Metadata.GetUid()},
		},
		CapabilityArgs: map[string]any{capPorts: portMappings(pod)},
	}
	if cidr := p.cidr(); cidr != "" {
		rt.CapabilityArgs[capRanges] = ipRanges(cidr)
	}
	if rates != nil {
		rt.CapabilityArgs[capBandwidth] = rates
	}
	return rt, nil
}

func portMappings(pod network.Pod) []map[string]any {
	mappings := []map[string]any{}
	for _, m := range pod.Ports {
		if m.GetHostPort() == 0 {
			continue
		}
		mappings = append(mappings, map[string]any{
			"hostPort": m.GetHostPort(), "containerPort": m.GetContainerPort(),
			"protocol": strings.ToLower(m.GetProtocol().String()), "hostIP": m.GetHostIp(),
		})
	}
	return mappings
}

// ipRanges is one set of ranges per address family, so that a pod gets an
// address of each.
func ipRanges(podCIDR string) [][]map[string]string {
	var ranges [][]map[string]string
	for cidr := range strings.SplitSeq(podCIDR, ",") {
		ranges = append(ranges, []map[string]string{{"subnet": strings.TrimSpace(cidr)}})
	}
	return ranges
}

// bandwidth reads the annotations; nil where there are none.
func bandwidth(annotations map[string]string) (map[string]uint64, error) {
	rates := map[string]uint64{}
	for annotation, direction := range map[string]string{annotationIngress: "ingress", annotationEgress: "egress"} {
		text, ok := annotations[annotation]
		if !ok {
			continue
		}
		rate, err := parseRate(text)
		if err != nil {
			return nil, fmt.Errorf("annotation %s: %w", annotation, err)
		}
		rates[direction+"Rate"], rates[direction+"Burst"] = rate, math.MaxInt32
	}
	if len(rates) == 0 {
		return nil, nil
	}
	return rates, nil
}

// parseRate takes what a kubelet takes: between 1k and 1P.
func parseRate(text string) (uint64, error) {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%q: %w: %w", text, err, errdefs.ErrInvalidArgument)
	}
	if q.Value() < 1e3 || q.Value() > 1e15 {
		return 0, fmt.Errorf("%q is not between 1k and 1P: %w", text, errdefs.ErrInvalidArgument)
	}
	return uint64(q.Value()), nil
}
