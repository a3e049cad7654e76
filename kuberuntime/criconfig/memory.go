package criconfig

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Files of cgroup v2, set as unified resources. The CRI has no field for the OOM group. Its field for swap limits memory
// and swap together.
const (
	oomGroupFile = "memory.oom.group"
	swapMaxFile  = "memory.swap.max"
)

// limitMemory sets the swap limit and the OOM group of a container. With cgroup v2, the kernel kills all processes of a
// container that is out of memory, unless the host has SingleProcessOOMKill. cgroup v1 has no OOM group and limits swap
// only together with memory.
func limitMemory(r *runtimeapi.LinuxContainerResources, p *v1.Pod, c *v1.Container, host Host) {
	if !host.CgroupV2 {
		if host.SwapControl {
			r.MemorySwapLimitInBytes = r.GetMemoryLimitInBytes() // memory and swap together
		}
		return
	}
	r.Unified = map[string]string{}
	if host.SwapControl {
		r.Unified[swapMaxFile] = strconv.FormatInt(swap(p, c, host), 10)
	}
	if !host.SingleProcessOOMKill {
		r.Unified[oomGroupFile] = "1"
	}
}

// swap returns the swap limit of a container in bytes, or 0 for a container that must not swap. With LimitedSwap, a
// Burstable container swaps if its memory request is set and differs from its limit. It gets the same share of the
// host's swap as it requests of the host's memory. Critical pods do not swap.
func swap(p *v1.Pod, c *v1.Container, host Host) int64 {
	request, limit := c.Resources.Requests.Memory(), c.Resources.Limits.Memory()
	critical := strings.HasPrefix(p.Spec.PriorityClassName, "system-")
	if !host.LimitedSwap || critical || QoS(p) != v1.PodQOSBurstable || request.IsZero() || request.Cmp(*limit) == 0 ||
		host.Memory <= 0 || request.Value() > host.Memory {
		return 0
	}
	return int64(float64(request.Value()) / float64(host.Memory) * float64(host.Swap))
}

// swapControl reports whether root is cgroup v2, and whether the kernel can limit swap. The root of cgroup v2 has no
// memory.swap.max file, so swapControl checks crishim's own cgroup.
func swapControl(root, ownCgroup string) (v2, control bool) {
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err != nil {
		_, err := os.Stat(filepath.Join(root, "memory", "memory.memsw.limit_in_bytes"))
		return false, err == nil
	}
	text, err := os.ReadFile(ownCgroup)
	if err != nil {
		return true, false
	}
	for line := range strings.Lines(string(text)) {
		if own, ok := strings.CutPrefix(line, "0::"); ok {
			_, err := os.Stat(filepath.Join(root, strings.TrimSuffix(own, "\n"), swapMaxFile))
			return true, err == nil
		}
	}
	return true, false
}
