package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/crishim/crishim/shim/host"
)

// userHZ is the unit of cpuacct.stat, fixed for all of Linux's user space.
const userHZ = 100

func usageV1(dirs host.CgroupDirs, at time.Time) sample {
	s := sample{at: at, memory: memoryV1(dirs["memory"])}
	s.cpu.usage, _ = number(dirs["cpuacct"], "cpuacct.usage")
	s.swap = swapV1(dirs["memory"], s.memory)
	s.processes = uint64(len(pids(anyDir(dirs))))
	return s
}

func measureV1(dirs host.CgroupDirs, at time.Time) sample {
	s := usageV1(dirs, at)
	s.cpu = cpuV1(dirs["cpuacct"], dirs["cpu"], s.cpu)
	s.memory = moreMemoryV1(dirs["memory"], s.memory)
	s.io.devices = devicesV1(dirs["blkio"])
	s.threads = pointer(number(dirs["pids"], "pids.current"))
	s.maxThread = pointer(number(dirs["pids"], "pids.max"))
	return s
}

// anyDir is a hierarchy that lists the processes; all of them do.
func anyDir(dirs host.CgroupDirs) string {
	for _, controller := range []string{"memory", "cpu", "pids", "freezer"} {
		if dir := dirs[controller]; dir != "" {
			return dir
		}
	}
	return ""
}

func cpuV1(acct, cpu string, c cpuSample) cpuSample {
	ticks := table(acct, "cpuacct.stat")
	c.user = ticks["user"] * uint64(time.Second) / userHZ
	c.system = ticks["system"] * uint64(time.Second) / userHZ
	quota := table(cpu, "cpu.stat")
	c.periods, c.throttled, c.throttledTime = quota["nr_periods"], quota["nr_throttled"], quota["throttled_time"]
	return c
}

func memoryV1(dir string) memorySample {
	var m memorySample
	m.usage, _ = number(dir, "memory.usage_in_bytes")
	limit, ok := number(dir, "memory.limit_in_bytes")
	m.limit = atMost(limit, ok)
	stat := table(dir, "memory.stat")
	m.workingSet = sub(m.usage, stat["total_inactive_file"])
	m.rss, m.cache, m.mapped = stat["total_rss"], stat["total_cache"], stat["total_mapped_file"]
	m.faults, m.majorFaults = stat["total_pgfault"], stat["total_pgmajfault"]
	return m
}

func moreMemoryV1(dir string, m memorySample) memorySample {
	m.maxUsage, _ = number(dir, "memory.max_usage_in_bytes")
	m.failures, _ = number(dir, "memory.failcnt")
	m.kernel, _ = number(dir, "memory.kmem.usage_in_bytes")
	m.oomKills = table(dir, "memory.oom_control")["oom_kill"]
	return m
}

// swapV1: the kernel counts memory and swap together, and separately only where
// swap accounting is on.
func swapV1(dir string, memory memorySample) *swapSample {
	both, ok := number(dir, "memory.memsw.usage_in_bytes")
	if !ok {
		return nil
	}
	bothLimit, _ := number(dir, "memory.memsw.limit_in_bytes")
	s := &swapSample{usage: sub(both, memory.usage), limit: unlimited}
	if bothLimit < unlimited {
		s.limit = sub(bothLimit, memory.limit)
	}
	return s
}

func atMost(n uint64, ok bool) uint64 {
	if !ok || n > unlimited {
		return unlimited
	}
	return n
}

// devicesV1 reads lines of device, direction and number.
func devicesV1(dir string) []ioDevice {
	found := map[string]*ioDevice{}
	var order []string
	each := func(file string, set func(d *ioDevice, direction string, n uint64)) {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) != 3 {
				continue
			}
			n, err := strconv.ParseUint(f[2], 10, 64)
			if err != nil {
				continue
			}
			if found[f[0]] == nil {
				found[f[0]] = &ioDevice{device: f[0]}
				order = append(order, f[0])
			}
			set(found[f[0]], f[1], n)
		}
	}
	each("blkio.throttle.io_service_bytes_recursive", func(d *ioDevice, direction string, n uint64) {
		switch direction {
		case "Read":
			d.readBytes = n
		case "Write":
			d.writeBytes = n
		}
	})
	each("blkio.throttle.io_serviced_recursive", func(d *ioDevice, direction string, n uint64) {
		switch direction {
		case "Read":
			d.reads = n
		case "Write":
			d.writes = n
		}
	})
	out := make([]ioDevice, 0, len(order))
	for _, name := range order {
		out = append(out, *found[name])
	}
	return out
}
