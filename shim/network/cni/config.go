package cni

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim/network"
)

// load returns kubenet's configuration if kubenet is in use. Otherwise it returns the first valid configuration in order
// of file names (dockershim: getDefaultCNINetwork).
func (p *Plugin) load() (*libcni.NetworkConfigList, error) {
	if p.options.Kubenet != nil {
		return p.options.Kubenet.list(p.cidr())
	}
	files, err := libcni.ConfFiles(p.options.ConfDir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, fmt.Errorf("CNI configurations in %s: %w", p.options.ConfDir, err)
	}
	var wrong []error
	for _, file := range files {
		list, err := read(file)
		if err == nil {
			return list, nil
		}
		wrong = append(wrong, fmt.Errorf("%s: %w", file, err))
	}
	return nil, fmt.Errorf("cni config uninitialized: %w",
		errors.Join(append(wrong, fmt.Errorf("no CNI configuration in %s: %w", p.options.ConfDir, errdefs.ErrFailedPrecondition))...))
}

func read(file string) (list *libcni.NetworkConfigList, err error) {
	if filepath.Ext(file) == ".conflist" {
		list, err = libcni.NetworkConfFromFile(file)
	} else {
		single, readErr := libcni.ConfFromFile(file) //nolint:staticcheck // single configurations are still in use
		if readErr != nil {
			return nil, readErr
		}
		if single.Network.Type == "" {
			return nil, errors.New("the configuration has no type")
		}
		list, err = libcni.ConfListFromConf(single) //nolint:staticcheck // the same
	}
	switch {
	case err != nil:
		return nil, err
	case len(list.Plugins) == 0:
		return nil, errors.New("the configuration names no plugins")
	case list.Name == "": // every plugin would reject it
		return nil, errors.New("the configuration has no name")
	}
	return list, nil
}

func wants(list *libcni.NetworkConfigList, capability string) bool {
	return slices.ContainsFunc(list.Plugins, func(p *libcni.PluginConfig) bool { return p.Network.Capabilities[capability] })
}

const (
	capPorts     = "portMappings"
	capRanges    = "ipRanges"
	capBandwidth = "bandwidth"
)

// runtimeConf corresponds to dockershim's buildCNIRuntimeConf. libcni passes a capability only to plugins that request
// it.
func (p *Plugin) runtimeConf(pod network.Pod) (*libcni.RuntimeConf, error) {
	rates, err := bandwidth(pod.Annotations)
	if err != nil {
		return nil, err
	}
	mappings := []map[string]any{}
	for _, m := range pod.Ports {
		if m.GetHostPort() != 0 {
			mappings = append(mappings, map[string]any{
				"hostPort": m.GetHostPort(), "containerPort": m.GetContainerPort(),
				"protocol": strings.ToLower(m.GetProtocol().String()), "hostIP": m.GetHostIp(),
			})
		}
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
		CapabilityArgs: map[string]any{capPorts: mappings},
	}
	if cidr := p.cidr(); cidr != "" {
		rt.CapabilityArgs[capRanges] = ipRanges(cidr)
	}
	if rates != nil {
		rt.CapabilityArgs[capBandwidth] = rates
	}
	return rt, nil
}

func ipRanges(podCIDR string) [][]map[string]string {
	var ranges [][]map[string]string
	for cidr := range strings.SplitSeq(podCIDR, ",") {
		ranges = append(ranges, []map[string]string{{"subnet": strings.TrimSpace(cidr)}})
	}
	return ranges
}

// bandwidth returns the limits in a pod's annotations, or nil without any.
func bandwidth(annotations map[string]string) (map[string]uint64, error) {
	rates := map[string]uint64{}
	for annotation, direction := range map[string]string{kube.AnnotationIngress: "ingress", kube.AnnotationEgress: "egress"} {
		rate, err := kube.Bandwidth(annotations, annotation)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", err, errdefs.ErrInvalidArgument)
		}
		if rate > 0 {
			rates[direction+"Rate"], rates[direction+"Burst"] = uint64(rate), math.MaxInt32
		}
	}
	if len(rates) == 0 {
		return nil, nil
	}
	return rates, nil
}
