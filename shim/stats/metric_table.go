package stats

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// baseLabels are the labels of all metrics, as in a kubelet's cAdvisor.
var baseLabels = []string{"container", "id", "image", "name", "namespace", "pod"}

const (
	counter = runtimeapi.MetricType_COUNTER
	gauge   = runtimeapi.MetricType_GAUGE
)

// metric is one of cAdvisor's metrics. CRI values are integers, so times are whole seconds.
type metric struct {
	name, help string
	kind       runtimeapi.MetricType
	labels     []string // in addition to baseLabels
	values     func(c *containerView) []labelled
}

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
	return one(*n)
}

func containerMetrics() []metric {
	return slices.Concat(cpuMetrics(), memoryMetrics(), diskMetrics(), pressureMetrics(), processMetrics(), specMetrics())
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
	of := func(name, help string, pick func(*containerView) *cgroups.PSIStats, part func(*cgroups.PSIStats) cgroups.PSIData) metric {
		return metric{name, help, counter, nil, func(c *containerView) []labelled {
			p := pick(c)
			if p == nil {
				return nil
			}
			return one(part(p).Total / uint64(time.Second/time.Microsecond))
		}}
	}
	some := func(p *cgroups.PSIStats) cgroups.PSIData { return p.Some }
	full := func(p *cgroups.PSIStats) cgroups.PSIData { return p.Full }
	cpu := func(c *containerView) *cgroups.PSIStats { return c.m.cpu.pressure }
	memory := func(c *containerView) *cgroups.PSIStats { return c.m.memory.pressure }
	io := func(c *containerView) *cgroups.PSIStats { return c.m.io.pressure }
	return []metric{
		of("container_pressure_cpu_waiting_seconds_total", "Time in which some tasks waited for a processor, in seconds.", cpu, some),
		of("container_pressure_cpu_stalled_seconds_total", "Time in which no task could go on for lack of a processor, in seconds.", cpu, full),
		of("container_pressure_memory_waiting_seconds_total", "Time in which some tasks waited for memory, in seconds.", memory, some),
		of("container_pressure_memory_stalled_seconds_total", "Time in which no task could go on for lack of memory, in seconds.", memory, full),
		of("container_pressure_io_waiting_seconds_total", "Time in which some tasks waited for a device, in seconds.", io, some),
		of("container_pressure_io_stalled_seconds_total", "Time in which no task could go on for waiting on a device, in seconds.", io, full),
	}
}

func diskMetrics() []metric {
	device := []string{"device"}
	perDevice := func(name, help string, pick func(ioDevice) uint64) metric {
		return metric{name, help, counter, device, func(c *containerView) []labelled {
			var out []labelled
			for _, d := range c.m.io.devices {
				out = append(out, labelled{pick(d), []string{d.device}})
			}
			return out
		}}
	}
	filesystem := func(name, help string, pick func(fsView) uint64) metric {
		return metric{name, help, gauge, device, func(c *containerView) []labelled {
			if c.fs == nil {
				return nil
			}
			return []labelled{{pick(*c.fs), []string{c.fs.device}}}
		}}
	}
	return []metric{
		perDevice("container_fs_reads_bytes_total", "Bytes read from block devices.", func(d ioDevice) uint64 { return d.readBytes }),
		perDevice("container_fs_writes_bytes_total", "Bytes written to block devices.", func(d ioDevice) uint64 { return d.writeBytes }),
		perDevice("container_fs_reads_total", "Reads from block devices.", func(d ioDevice) uint64 { return d.reads }),
		perDevice("container_fs_writes_total", "Writes to block devices.", func(d ioDevice) uint64 { return d.writes }),
		{"container_blkio_device_usage_total", "Bytes moved from and to block devices.", counter, []string{"device", "major", "minor", "operation"}, func(c *containerView) []labelled {
			var out []labelled
			for _, d := range c.m.io.devices {
				major, minor, _ := strings.Cut(d.device, ":")
				out = append(out, labelled{d.readBytes, []string{"", major, minor, "Read"}}, labelled{d.writeBytes, []string{"", major, minor, "Write"}})
			}
			return out
		}},
		filesystem("container_fs_usage_bytes", "Bytes that the container has written.", func(f fsView) uint64 { return f.used }),
		filesystem("container_fs_limit_bytes", "Size of the file system that the container writes to.", func(f fsView) uint64 { return f.size }),
		filesystem("container_fs_inodes_total", "Inodes of the file system that the container writes to.", func(f fsView) uint64 { return f.inodes }),
		filesystem("container_fs_inodes_free", "Free inodes of the file system that the container writes to.", func(f fsView) uint64 { return f.inodesFree }),
	}
}

func processMetrics() []metric {
	return []metric{
		{"container_last_seen", "When the container was last seen, in seconds since 1970.", gauge, nil, func(c *containerView) []labelled { return one(uint64(c.m.at.Unix())) }},
		{"container_start_time_seconds", "When the container was started, in seconds since 1970.", gauge, nil, func(c *containerView) []labelled { return one(c.started) }},
		{"container_processes", "Processes in the container.", gauge, nil, func(c *containerView) []labelled { return one(c.m.processes) }},
		{"container_threads", "Threads in the container.", gauge, nil, func(c *containerView) []labelled {
			if c.m.threads == 0 {
				return nil
			}
			return one(c.m.threads)
		}},
		{"container_threads_max", "Most threads allowed in the container, 0 for no limit.", gauge, nil, func(c *containerView) []labelled {
			if c.m.threads == 0 {
				return nil
			}
			return one(c.m.maxThreads)
		}},
		{"container_file_descriptors", "Open file descriptors in the container.", gauge, nil, func(c *containerView) []labelled { return maybe(c.files) }},
		{"container_sockets", "Open sockets in the container.", gauge, nil, func(c *containerView) []labelled { return maybe(c.sockets) }},
		{"container_ulimits_soft", "Soft limits of the first process.", gauge, []string{"ulimit"}, func(c *containerView) []labelled {
			if c.openFiles == nil {
				return nil
			}
			return []labelled{{*c.openFiles, []string{"max_open_files"}}}
		}},
		{"container_hugetlb_usage_bytes", "Huge pages reserved or in use, in bytes.", gauge, []string{"pagesize"}, func(c *containerView) []labelled { return c.m.hugepages }},
		{"container_hugetlb_max_usage_bytes", "Highest reservation or use of huge pages so far, in bytes.", gauge, []string{"pagesize"}, func(c *containerView) []labelled { return c.m.hugepagesMax }},
	}
}

func specMetrics() []metric {
	of := func(name, help string, pick func(container.Resources) int64) metric {
		return metric{name, help, gauge, nil, func(c *containerView) []labelled { return one(uint64(max(pick(c.spec), 0))) }}
	}
	return []metric{
		of("container_spec_cpu_period", "Period of the processor quota, in microseconds.", func(r container.Resources) int64 {
			return cmp.Or(max(r.CPUPeriod, 0), 100000) // the kernel's default
		}),
		{"container_spec_cpu_quota", "Processor quota per period, in microseconds.", gauge, nil, func(c *containerView) []labelled {
			if c.spec.CPUQuota <= 0 {
				return nil
			}
			return one(uint64(c.spec.CPUQuota))
		}},
		of("container_spec_cpu_shares", "Share of the processors.", func(r container.Resources) int64 { return r.CPUShares }),
		of("container_spec_memory_limit_bytes", "Memory limit, 0 for none.", func(r container.Resources) int64 { return r.Memory }),
		of("container_spec_memory_reservation_limit_bytes", "Memory reservation, 0 for none.", func(r container.Resources) int64 { return r.MemoryReservation }),
		of("container_spec_memory_swap_limit_bytes", "Limit of memory and swap together, 0 for none.", func(r container.Resources) int64 { return r.MemorySwap }),
	}
}

type networkMetric struct {
	name, help string
	pick       func(procfs.NetDevLine) uint64
}

func networkMetrics() []networkMetric {
	return []networkMetric{
		{"container_network_receive_bytes_total", "Bytes received.", func(i procfs.NetDevLine) uint64 { return i.RxBytes }},
		{"container_network_receive_packets_total", "Packets received.", func(i procfs.NetDevLine) uint64 { return i.RxPackets }},
		{"container_network_receive_packets_dropped_total", "Packets dropped while receiving.", func(i procfs.NetDevLine) uint64 { return i.RxDropped }},
		{"container_network_receive_errors_total", "Errors while receiving.", func(i procfs.NetDevLine) uint64 { return i.RxErrors }},
		{"container_network_transmit_bytes_total", "Bytes sent.", func(i procfs.NetDevLine) uint64 { return i.TxBytes }},
		{"container_network_transmit_packets_total", "Packets sent.", func(i procfs.NetDevLine) uint64 { return i.TxPackets }},
		{"container_network_transmit_packets_dropped_total", "Packets dropped while sending.", func(i procfs.NetDevLine) uint64 { return i.TxDropped }},
		{"container_network_transmit_errors_total", "Errors while sending.", func(i procfs.NetDevLine) uint64 { return i.TxErrors }},
	}
}

func descriptors() []*runtimeapi.MetricDescriptor {
	var out []*runtimeapi.MetricDescriptor
	for _, m := range containerMetrics() {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: slices.Concat(baseLabels, m.labels)})
	}
	for _, m := range networkMetrics() {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: slices.Concat(baseLabels, []string{"interface"})})
	}
	return out
}
