package stats

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

func usageV2(dir string, at time.Time) sample {
	s := sample{at: at, cpu: cpuV2(dir), memory: memoryV2(dir), swap: swapV2(dir)}
	s.io.pressure = readPressure(dir, "io.pressure")
	s.processes = uint64(len(pids(dir)))
	return s
}

func measureV2(dir string, at time.Time) sample {
	s := usageV2(dir, at)
	s.memory = moreMemoryV2(dir, s.memory)
	s.io.devices = devicesV2(dir)
	s.threads = pointer(number(dir, "pids.current"))
	s.maxThread = pointer(number(dir, "pids.max"))
	return s
}

func cpuV2(dir string) cpuSample {
	const micro = uint64(time.Microsecond)
	stat := table(dir, "cpu.stat")
	return cpuSample{
		usage: stat["usage_usec"] * micro, user: stat["user_usec"] * micro, system: stat["system_usec"] * micro,
		periods: stat["nr_periods"], throttled: stat["nr_throttled"], throttledTime: stat["throttled_usec"] * micro,
		pressure: readPressure(dir, "cpu.pressure"),
	}
}

func memoryV2(dir string) memorySample {
	var m memorySample
	m.usage, _ = number(dir, "memory.current")
	limit, ok := number(dir, "memory.max")
	m.limit = atMost(limit, ok)
	stat := table(dir, "memory.stat")
	m.workingSet = sub(m.usage, stat["inactive_file"])
	m.rss, m.cache, m.mapped, m.kernel = stat["anon"], stat["file"], stat["file_mapped"], stat["kernel"]
	m.faults, m.majorFaults = stat["pgfault"], stat["pgmajfault"]
	m.pressure = readPressure(dir, "memory.pressure")
	return m
}

func moreMemoryV2(dir string, m memorySample) memorySample {
	m.maxUsage, _ = number(dir, "memory.peak")
	events := table(dir, "memory.events")
	m.failures, m.oomKills = events["max"], events["oom_kill"]
	return m
}

func swapV2(dir string) *swapSample {
	usage, ok := number(dir, "memory.swap.current")
	if !ok {
		return nil
	}
	limit, ok := number(dir, "memory.swap.max")
	return &swapSample{usage: usage, limit: atMost(limit, ok)}
}

// devicesV2 reads lines such as "8:0 rbytes=1 wbytes=2 rios=3 wios=4".
func devicesV2(dir string) []ioDevice {
	b, err := os.ReadFile(filepath.Join(dir, "io.stat"))
	if err != nil {
		return nil
	}
	var out []ioDevice
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		d := ioDevice{device: f[0]}
		for _, pair := range f[1:] {
			key, value, _ := strings.Cut(pair, "=")
			n, err := strconv.ParseUint(value, 10, 64)
			if err != nil {
				continue
			}
			switch key {
			case "rbytes":
				d.readBytes = n
			case "wbytes":
				d.writeBytes = n
			case "rios":
				d.reads = n
			case "wios":
				d.writes = n
			}
		}
		out = append(out, d)
	}
	return out
}
