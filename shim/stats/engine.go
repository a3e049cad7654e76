package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/docker/docker/api/types/container"
)

var errNotRunning = errors.New("the container is not running")

// readEngine asks the engine for its own statistics.
func (s *Service) readEngine(ctx context.Context, id string) (m sample, err error) {
	r, err := s.engine.ContainerStatsOneShot(ctx, id)
	if err != nil {
		return m, fmt.Errorf("statistics of container %s: %w", id, err)
	}
	defer func() { err = errors.Join(err, r.Body.Close()) }()
	var answer container.StatsResponse
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil && !errors.Is(err, io.EOF) {
		return m, fmt.Errorf("statistics of container %s: %w", id, err)
	}
	if answer.Read.IsZero() || answer.Read.Year() < 1970 {
		return m, errNotRunning
	}
	return fromEngine(answer), nil
}

// fromEngine reads the engine's answer, whose memory table has the kernel's
// names: those of version 1 or of version 2.
func fromEngine(a container.StatsResponse) sample {
	m := sample{at: a.Read}
	m.cpu = cpuSample{
		usage: a.CPUStats.CPUUsage.TotalUsage, user: a.CPUStats.CPUUsage.UsageInUsermode, system: a.CPUStats.CPUUsage.UsageInKernelmode,
		periods: a.CPUStats.ThrottlingData.Periods, throttled: a.CPUStats.ThrottlingData.ThrottledPeriods,
		throttledTime: a.CPUStats.ThrottlingData.ThrottledTime,
	}
	stat := a.MemoryStats.Stats
	m.memory = memorySample{
		usage: a.MemoryStats.Usage, maxUsage: a.MemoryStats.MaxUsage, failures: a.MemoryStats.Failcnt, limit: unlimited,
		workingSet: sub(a.MemoryStats.Usage, first(stat, "total_inactive_file", "inactive_file")),
		rss:        first(stat, "total_rss", "anon"), cache: first(stat, "total_cache", "file"),
		mapped: first(stat, "total_mapped_file", "file_mapped"), faults: first(stat, "total_pgfault", "pgfault"),
		majorFaults: first(stat, "total_pgmajfault", "pgmajfault"),
	}
	// Without a limit the engine names the host's memory.
	if limit, ok := stat["hierarchical_memory_limit"]; ok && limit < unlimited {
		m.memory.limit = limit
	}
	m.processes = a.PidsStats.Current
	m.threads = &a.PidsStats.Current
	m.io.devices = engineDevices(a.BlkioStats)
	return m
}

func first(stat map[string]uint64, names ...string) uint64 {
	for _, name := range names {
		if n, ok := stat[name]; ok {
			return n
		}
	}
	return 0
}

func engineDevices(b container.BlkioStats) []ioDevice {
	found := map[string]*ioDevice{}
	var order []string
	of := func(major, minor uint64) *ioDevice {
		name := strconv.FormatUint(major, 10) + ":" + strconv.FormatUint(minor, 10)
		if found[name] == nil {
			found[name] = &ioDevice{device: name}
			order = append(order, name)
		}
		return found[name]
	}
	for _, e := range b.IoServiceBytesRecursive {
		switch e.Op {
		case "Read", "read":
			of(e.Major, e.Minor).readBytes = e.Value
		case "Write", "write":
			of(e.Major, e.Minor).writeBytes = e.Value
		}
	}
	for _, e := range b.IoServicedRecursive {
		switch e.Op {
		case "Read", "read":
			of(e.Major, e.Minor).reads = e.Value
		case "Write", "write":
			of(e.Major, e.Minor).writes = e.Value
		}
	}
	out := make([]ioDevice, 0, len(order))
	for _, name := range order {
		out = append(out, *found[name])
	}
	return out
}
