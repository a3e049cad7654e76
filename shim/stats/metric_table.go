package stats

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Labels that every metric has, as a kubelet's cAdvisor writes them.
var baseLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

const (
	counter = runtimeapi.MetricType_COUNTER
	gauge   = runtimeapi.MetricType_GAUGE
)

// metric is one of cAdvisor's metrics: how it is described, and how its values
// are taken from what was measured. The CRI carries whole numbers, so times
// are in whole seconds.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	labels     []string // beside the base labels
	values     func(c *containerView) []labelled
}

// labelled is a value with the values of the metric's own labels.
type labelled struct {
	value  uint64
	labels []string
}

func one(n uint64) []labelled { return []labelled{{value: n}} }

func seconds(nano uint64) []labelled { return one(nano / uint64(time.Second)) }

func maybe(n *uint64) []labelled {
	if n == nil {
		return nil
	}
	return one(min(*n, unlimited))
}

// limitOf writes no limit as 0, as cAdvisor does.
func limitOf(n uint64) []labelled {
	if n >= unlimited {
		n = 0
	}
	return one(n)
}

// containerMetrics are the metrics of a container.
func containerMetrics() []metric {
	var all []metric
	for _, group := range [][]metric{cpuMetrics(), memoryMetrics(), diskMetrics(), pressureMetrics(), processMetrics(), specMetrics()} {
		all = append(all, group...)
	}
	return all
}

func cpuMetrics() []metric {
	return []metric{
		{"container_cpu_usage_seconds_total", "Processor time used, in seconds.", counter, []string{"cpu"}, func(c *containerView) []labelled {
			return []labelled{{c.m.cpu.usage / uint64(time.Second), []string{"total"}}}
		}},
		{"container_cpu_user_seconds_total", "Processor time used in user mode, in seconds.", counter, nil, func(c *containerView) []labelled { return seconds(c.m.cpu.user) }},
		{"container_cpu_system_seconds_total", "Processor time used in the kernel, in seconds.", counter, nil, func(c *containerView) []labelled { return seconds(c.m.cpu.system) }},
		{"container_cpu_cfs_periods_total", "Elapsed enforcement periods of the processor quota.", counter, nil, func(c *containerView) []labelled { return one(c.m.cpu.periods) }},
		{"container_cpu_cfs_throttled_periods_total", "Periods in which the quota ran out.", counter, nil, func(c *containerView) []labelled { return one(c.m.cpu.throttled) }},
		{"container_cpu_cfs_throttled_seconds_total", "Time for which the container was throttled, in seconds.", counter, nil, func(c *containerView) []labelled { return seconds(c.m.cpu.throttledTime) }},
	}
}

func memoryMetrics() []metric {
	of := func(name, help string, kind runtimeapi.MetricType, pick func(memorySample) uint64) metric {
		return metric{name, help, kind, nil, func(c *containerView) []labelled { return one(pick(c.m.memory)) }}
	}
	return []metric{
		of("container_memory_usage_bytes", "Memory in use, caches included.", gauge, func(m memorySample) uint64 { return m.usage }),
		of("container_memory_working_set_bytes", "Memory in use that cannot be dropped at once.", gauge, func(m memorySample) uint64 { return m.workingSet }),
		of("container_memory_rss", "Anonymous memory.", gauge, func(m memorySample) uint64 { return m.rss }),
		of("container_memory_cache", "Page cache.", gauge, func(m memorySample) uint64 { return m.cache }),
		of("container_memory_mapped_file", "Memory mapped from files.", gauge, func(m memorySample) uint64 { return m.mapped }),
		of("container_memory_kernel_usage", "Memory of the kernel on behalf of the container.", gauge, func(m memorySample) uint64 { return m.kernel }),
		of("container_memory_max_usage_bytes", "Highest memory usage so far.", gauge, func(m memorySample) uint64 { return m.maxUsage }),
		of("container_memory_failcnt", "Times that memory usage hit its limit.", counter, func(m memorySample) uint64 { return m.failures }),
		of("container_oom_events_total", "Processes that were killed for lack of memory.", counter, func(m memorySample) uint64 { return m.oomKills }),
		{"container_memory_swap", "Swap in use.", gauge, nil, func(c *containerView) []labelled {
			if c.m.swap == nil {
				return one(0)
			}
			return one(c.m.swap.usage)
		}},
		{"container_memory_failures_total", "Page faults.", counter, []string{"failure_type", "scope"}, func(c *containerView) []labelled {
			return []labelled{
				{c.m.memory.faults, []string{"pgfault", "container"}},
				{c.m.memory.majorFaults, []string{"pgmajfault", "container"}},
			}
		}},
	}
}

func pressureMetrics() []metric {
	of := func(name, help string, pick func(*containerView) *pressure, part func(*pressure) stall) metric {
		return metric{name, help, counter, nil, func(c *containerView) []labelled {
			p := pick(c)
			if p == nil {
				return nil
			}
			return seconds(part(p).total)
		}}
	}
	some := func(p *pressure) stall { return p.some }
	full := func(p *pressure) stall { return p.full }
	cpu := func(c *containerView) *pressure { return c.m.cpu.pressure }
	memory := func(c *containerView) *pressure { return c.m.memory.pressure }
	io := func(c *containerView) *pressure { return c.m.io.pressure }
	return []metric{
		of("container_pressure_cpu_waiting_seconds_total", "Time in which some tasks waited for a processor, in seconds.", cpu, some),
		of("container_pressure_cpu_stalled_seconds_total", "Time in which no task could go on for lack of a processor, in seconds.", cpu, full),
		of("container_pressure_memory_waiting_seconds_total", "Time in which some tasks waited for memory, in seconds.", memory, some),
		of("container_pressure_memory_stalled_seconds_total", "Time in which no task could go on for lack of memory, in seconds.", memory, full),
		of("container_pressure_io_waiting_seconds_total", "Time in which some tasks waited for a device, in seconds.", io, some),
		of("container_pressure_io_stalled_seconds_total", "Time in which no task could go on for waiting on a device, in seconds.", io, full),
	}
}
