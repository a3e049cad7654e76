package criconfig

import (
	"fmt"
	"strconv"

	"github.com/opencontainers/cgroups"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// CgroupParent returns the cgroup of a pod with resources of its own, in the form of the cgroupfs driver, or "".
func CgroupParent(p *v1.Pod) string {
	if p.Spec.Resources == nil {
		return ""
	}
	return "/crishim/pod" + string(p.UID)
}

// CgroupFile is a limit in a cgroup. Controller is empty with cgroup v2.
type CgroupFile struct{ Controller, Name, Value string }

// PodCgroup returns the limits of a pod's cgroup, like the kubelet's ResourceConfigForPod.
func PodCgroup(p *v1.Pod, host Host) []CgroupFile {
	limits, requests := p.Spec.Resources.Limits, p.Spec.Resources.Requests
	cpuShares := shares(requests.Cpu().MilliValue())
	quota, memory := "-1", "-1"
	if cpu := limits.Cpu(); !cpu.IsZero() {
		quota = strconv.FormatInt(cpuQuota(*cpu), 10)
	}
	if limit := limits.Memory(); !limit.IsZero() {
		memory = strconv.FormatInt(limit.Value(), 10)
	}
	if !host.CgroupV2 {
		return []CgroupFile{
			{"memory", "memory.limit_in_bytes", memory}, {"cpu", "cpu.shares", strconv.FormatInt(cpuShares, 10)},
			{"cpu", "cpu.cfs_period_us", strconv.Itoa(quotaPeriod)}, {"cpu", "cpu.cfs_quota_us", quota},
		}
	}
	none := func(value string) string {
		if value == "-1" {
			return "max"
		}
		return value
	}
	weight := cgroups.ConvertCPUSharesToCgroupV2Value(uint64(cpuShares))
	return []CgroupFile{
		{"", "memory.max", none(memory)}, {"", "cpu.weight", strconv.FormatUint(weight, 10)}, {"", "cpu.max", fmt.Sprint(none(quota), " ", quotaPeriod)},
	}
}

func shares(milli int64) int64 { return min(max(milli*1024/1000, minShares), maxShares) }

func cpuQuota(limit resource.Quantity) int64 {
	return max(limit.MilliValue()*quotaPeriod/1000, minQuota)
}

// limitOf returns the limit of a container, or else of its pod, like the kubelet's getCPULimit and getMemoryLimit.
func limitOf(p *v1.Pod, c *v1.Container, name v1.ResourceName) resource.Quantity {
	limit := c.Resources.Limits[name]
	if limit.IsZero() && p.Spec.Resources != nil {
		return p.Spec.Resources.Limits[name]
	}
	return limit
}
