package commands

import (
	"cmp"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// unknownAmount is a figure that the runtime did not give.
const unknownAmount = -1

// nanosPerSecond is also the nanoseconds of CPU time in a second of one core.
const nanosPerSecond = 1e9

func networkOf(s *runtimeapi.PodSandboxStats) traffic {
	i := s.GetLinux().GetNetwork().GetDefaultInterface()
	return traffic{in: amount(i.GetRxBytes()), out: amount(i.GetTxBytes())}
}

// amount is v, or unknownAmount.
func amount(v *runtimeapi.UInt64Value) int64 {
	if v == nil {
		return unknownAmount
	}
	return int64(v.GetValue())
}

// containerUsages computes the lines of a stats table from two samples. A
// container that is in the second sample only has no CPU rate yet; it is
// listed all the same.
func containerUsages(before, after *runtimeapi.ListContainerStatsResponse, more beside, all bool) []output.Usage {
	earlier := map[string]*runtimeapi.CpuUsage{}
	for _, s := range before.GetStats() {
		earlier[s.GetAttributes().GetId()] = s.GetCpu()
	}
	var usages []output.Usage
	for _, s := range after.GetStats() {
		a := s.GetAttributes()
		u := output.Usage{
			ID: a.GetId(), Name: a.GetMetadata().GetName(),
			Pod: a.GetLabels()[labelPodName], Namespace: a.GetLabels()[labelPodNamespace],
			CPUPercent:  cpuPercent(earlier[a.GetId()], s.GetCpu()),
			Memory:      amount(s.GetMemory().GetWorkingSetBytes()),
			MemoryLimit: memoryLimit(s.GetMemory()),
			Disk:        amount(s.GetWritableLayer().GetUsedBytes()),
			Inodes:      amount(s.GetWritableLayer().GetInodesUsed()),
			Swap:        amount(s.GetSwap().GetSwapUsageBytes()),
		}
		more.fill(&u)
		if all || u.CPUPercent > 0 || u.Memory > 0 {
			usages = append(usages, u)
		}
	}
	sortUsages(usages)
	return usages
}

func sortUsages(usages []output.Usage) {
	slices.SortFunc(usages, func(a, b output.Usage) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.Name, b.Name), cmp.Compare(a.ID, b.ID))
	})
}

// memoryLimit follows from the CRI's "available = limit - working set"; 0 is
// no limit.
func memoryLimit(m *runtimeapi.MemoryUsage) int64 {
	if m.GetAvailableBytes() == nil || m.GetAvailableBytes().GetValue() == 0 {
		return 0
	}
	return int64(m.GetAvailableBytes().GetValue() + m.GetWorkingSetBytes().GetValue())
}

// cpuPercent is the CPU time per time between two samples, in per cent of one
// core; where the clock of the samples did not move it is the runtime's own
// rate, else unknown.
func cpuPercent(before, after *runtimeapi.CpuUsage) float64 {
	if after == nil {
		return unknownAmount
	}
	elapsed := after.GetTimestamp() - before.GetTimestamp()
	used, earlier := after.GetUsageCoreNanoSeconds(), before.GetUsageCoreNanoSeconds()
	if before != nil && elapsed > 0 && used != nil && earlier != nil && used.GetValue() >= earlier.GetValue() {
		return 100 * float64(used.GetValue()-earlier.GetValue()) / float64(elapsed)
	}
	if rate := after.GetUsageNanoCores(); rate != nil {
		return 100 * float64(rate.GetValue()) / nanosPerSecond
	}
	return unknownAmount
}
