package criconfig

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/crishim/crishim/kuberuntime/manifest"
	v1 "k8s.io/api/core/v1"
)

// Host is what a pod's configuration needs to know about the host.
type Host struct {
	Name        string
	IPs         []string
	CPUs        int
	Memory      int64
	Storage     int64   // size of the root file system
	HugePages   []int64 // sizes of huge pages that the kernel has, in bytes
	SwapControl bool    // swap can be limited
	DNS         DNS
	HostsFile   string // text of the host's own /etc/hosts
}

// DNS is the content of a resolv.conf.
type DNS struct{ Servers, Searches, Options []string }

// Field is the value of a fieldRef. podIPs are known once the sandbox runs.
func Field(p *v1.Pod, host Host, podIPs []string, path string) (string, error) {
	if name, key, ok := manifest.MapField(path); ok {
		if name == "metadata.labels" {
			return p.Labels[key], nil
		}
		return p.Annotations[key], nil
	}
	switch path {
	case "metadata.name":
		return p.Name, nil
	case "metadata.namespace":
		return p.Namespace, nil
	case "metadata.uid":
		return string(p.UID), nil
	case "metadata.labels":
		return formatMap(p.Labels), nil
	case "metadata.annotations":
		return formatMap(p.Annotations), nil
	case "spec.nodeName":
		return host.Name, nil
	case "spec.serviceAccountName":
		return "default", nil
	case "status.hostIP":
		return first(host.IPs), nil
	case "status.hostIPs":
		return strings.Join(host.IPs, ","), nil
	case "status.podIP":
		return first(podIPs), nil
	case "status.podIPs":
		return strings.Join(podIPs, ","), nil
	}
	return "", fmt.Errorf("unknown field %s", path)
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// formatMap writes key="value" lines in the order of the keys, as volumes have them.
func formatMap(m map[string]string) string {
	lines := make([]string, 0, len(m))
	for _, key := range sortedKeys(m) {
		lines = append(lines, key+"="+strconv.Quote(m[key]))
	}
	return strings.Join(lines, "\n")
}

// Resource is the value of a resourceFieldRef, rounded up to the divisor. A limit that is
// not set is what the host has.
func Resource(c *v1.Container, host Host, ref *v1.ResourceFieldSelector) (string, error) {
	kind, name, _ := strings.Cut(ref.Resource, ".")
	list := c.Resources.Requests
	if kind == "limits" {
		list = c.Resources.Limits
	}
	quantity, set := list[v1.ResourceName(name)]
	if !set && kind == "limits" {
		switch v1.ResourceName(name) {
		case v1.ResourceCPU:
			quantity = *resource.NewQuantity(int64(host.CPUs), resource.DecimalSI)
		case v1.ResourceMemory:
			quantity = *resource.NewQuantity(host.Memory, resource.BinarySI)
		case v1.ResourceEphemeralStorage:
			quantity = *resource.NewQuantity(host.Storage, resource.BinarySI)
		}
	}
	divisor := ref.Divisor
	if divisor.IsZero() {
		divisor = resource.MustParse("1")
	}
	if divisor.Sign() < 0 {
		return "", fmt.Errorf("divisor %s is negative", divisor.String())
	}
	if v1.ResourceName(name) == v1.ResourceCPU {
		return ceilDiv(float64(quantity.MilliValue()), float64(divisor.MilliValue())), nil
	}
	return ceilDiv(float64(quantity.Value()), float64(divisor.Value())), nil
}

func ceilDiv(a, b float64) string {
	return strconv.FormatInt(int64(math.Ceil(a/b)), 10)
}
