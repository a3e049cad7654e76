package stats

import runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
		{"container_blkio_device_usage_total", "Bytes moved from and to block devices.", counter, []string{"device", "major", "minor", "operation"}, blkioUsage},
		filesystem("container_fs_usage_bytes", "Bytes that the container has written.", func(f fsView) uint64 { return f.used }),
		filesystem("container_fs_limit_bytes", "Size of the file system that the container writes to.", func(f fsView) uint64 { return f.size }),
		filesystem("container_fs_inodes_total", "Inodes of the file system that the container writes to.", func(f fsView) uint64 { return f.inodes }),
		filesystem("container_fs_inodes_free", "Free inodes of the file system that the container writes to.", func(f fsView) uint64 { return f.inodesFree }),
	}
}

func blkioUsage(c *containerView) []labelled {
	var out []labelled
	for _, d := range c.m.io.devices {
		major, minor := deviceNumbers(d.device)
		out = append(out,
			labelled{d.readBytes, []string{"", major, minor, "Read"}},
			labelled{d.writeBytes, []string{"", major, minor, "Write"}})
	}
	return out
}

func processMetrics() []metric {
	return []metric{
		{"container_last_seen", "When the container was last seen, in seconds since 1970.", gauge, nil, func(c *containerView) []labelled { return one(uint64(c.m.at.Unix())) }},
		{"container_start_time_seconds", "When the container was started, in seconds since 1970.", gauge, nil, func(c *containerView) []labelled { return one(c.started) }},
		{"container_processes", "Processes in the container.", gauge, nil, func(c *containerView) []labelled { return one(c.m.processes) }},
		{"container_threads", "Threads in the container.", gauge, nil, func(c *containerView) []labelled { return maybe(c.m.threads) }},
		{"container_threads_max", "Most threads allowed in the container, 0 for no limit.", gauge, nil, func(c *containerView) []labelled {
			if c.m.maxThread == nil {
				return nil
			}
			return limitOf(*c.m.maxThread)
		}},
		{"container_file_descriptors", "Open file descriptors in the container.", gauge, nil, func(c *containerView) []labelled { return maybe(c.files) }},
		{"container_sockets", "Open sockets in the container.", gauge, nil, func(c *containerView) []labelled { return maybe(c.sockets) }},
		{"container_ulimits_soft", "Soft limits of the first process.", gauge, []string{"ulimit"}, func(c *containerView) []labelled {
			if c.openFiles == nil {
				return nil
			}
			return []labelled{{*c.openFiles, []string{"max_open_files"}}}
		}},
		{"container_hugetlb_usage_bytes", "Huge pages in use, in bytes.", gauge, []string{"pagesize"}, func(c *containerView) []labelled { return c.hugepages }},
		{"container_hugetlb_max_usage_bytes", "Highest use of huge pages so far, in bytes.", gauge, []string{"pagesize"}, func(c *containerView) []labelled { return c.hugepagesMax }},
	}
}

func specMetrics() []metric {
	return []metric{
		{"container_spec_cpu_period", "Period of the processor quota, in microseconds.", gauge, nil, func(c *containerView) []labelled { return one(c.spec.period) }},
		{"container_spec_cpu_quota", "Processor quota per period, in microseconds.", gauge, nil, func(c *containerView) []labelled {
			if c.spec.quota == 0 {
				return nil
			}
			return one(c.spec.quota)
		}},
		{"container_spec_cpu_shares", "Share of the processors.", gauge, nil, func(c *containerView) []labelled { return one(c.spec.shares) }},
		{"container_spec_memory_limit_bytes", "Memory limit, 0 for none.", gauge, nil, func(c *containerView) []labelled { return one(c.spec.memory) }},
		{"container_spec_memory_reservation_limit_bytes", "Memory reservation, 0 for none.", gauge, nil, func(c *containerView) []labelled { return one(c.spec.reservation) }},
		{"container_spec_memory_swap_limit_bytes", "Limit of memory and swap together, 0 for none.", gauge, nil, func(c *containerView) []labelled { return one(c.spec.swap) }},
	}
}

// networkMetric is a metric of a pod, one value per interface.
type networkMetric struct {
	name, help string
	pick       func(netInterface) uint64
}

func networkMetrics() []networkMetric {
	return []networkMetric{
		{"container_network_receive_bytes_total", "Bytes received.", func(i netInterface) uint64 { return i.rxBytes }},
		{"container_network_receive_packets_total", "Packets received.", func(i netInterface) uint64 { return i.rxPackets }},
		{"container_network_receive_packets_dropped_total", "Packets dropped while receiving.", func(i netInterface) uint64 { return i.rxDropped }},
		{"container_network_receive_errors_total", "Errors while receiving.", func(i netInterface) uint64 { return i.rxErrors }},
		{"container_network_transmit_bytes_total", "Bytes sent.", func(i netInterface) uint64 { return i.txBytes }},
		{"container_network_transmit_packets_total", "Packets sent.", func(i netInterface) uint64 { return i.txPackets }},
		{"container_network_transmit_packets_dropped_total", "Packets dropped while sending.", func(i netInterface) uint64 { return i.txDropped }},
		{"container_network_transmit_errors_total", "Errors while sending.", func(i netInterface) uint64 { return i.txErrors }},
	}
}

// descriptors describes every metric that a call may return.
func descriptors() []*runtimeapi.MetricDescriptor {
	var out []*runtimeapi.MetricDescriptor
	for _, m := range containerMetrics() {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: append(append([]string{}, baseLabels...), m.labels...)})
	}
	for _, m := range networkMetrics() {
		out = append(out, &runtimeapi.MetricDescriptor{Name: m.name, Help: m.help, LabelKeys: append(append([]string{}, baseLabels...), "interface")})
	}
	return out
}
