package stats

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/fs"
	"github.com/opencontainers/cgroups/fs2"
	"github.com/opencontainers/cgroups/fscommon"

	"github.com/crishim/crishim/shim/host"
)

// collect leaves out targets that have ended, and targets for which the engine has an internal error or does not answer
// in time.
func (s *Service) collect(ctx context.Context, ts []target, what cgroups.Controller) (map[string]sample, error) {
	var mu sync.Mutex
	out := map[string]sample{}
	err := each(ctx, len(ts), func(ctx context.Context, i int) error {
		one, cancel := context.WithTimeout(ctx, s.timeout)
		defer cancel()
		m, ok, err := s.read(one, ts[i], what)
		if err != nil && one.Err() != nil && ctx.Err() == nil {
			s.log.Warn("a container cannot be measured in time", "id", ts[i].c.ID, "err", err)
			return nil
		}
		if err != nil || !ok {
			return s.skippable(ts[i].c.ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		out[ts[i].c.ID] = m
		return nil
	})
	return out, err
}

func (s *Service) read(ctx context.Context, t target, what cgroups.Controller) (m sample, ok bool, err error) {
	if t.dirs != nil {
		m = measure(t.dirs, what, time.Now())
		if m.cpu.usage > 0 || m.memory.usage > 0 {
			return m, true, nil
		}
	}
	r, err := s.engine.ContainerStatsOneShot(ctx, t.c.ID)
	if errdefs.IsNotFound(err) {
		return m, false, nil
	}
	if err != nil {
		return m, false, fmt.Errorf("statistics of container %s: %w", t.c.ID, err)
	}
	defer func() { err = errors.Join(err, r.Body.Close()) }()
	var answer container.StatsResponse
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil && !errors.Is(err, io.EOF) {
		return m, false, fmt.Errorf("statistics of container %s: %w", t.c.ID, err)
	}
	if answer.Read.IsZero() || answer.Read.Year() < 1970 { // the container does not run
		return m, false, nil
	}
	return fromEngine(answer, t.c.HostConfig.Memory), true, nil
}

// fromEngine takes the memory limit from the container's configuration, because the engine reports the host's memory
// as the limit of a container without one.
func fromEngine(a container.StatsResponse, memoryLimit int64) sample {
	s := cgroups.NewStats()
	s.CpuStats.CpuUsage.TotalUsage = a.CPUStats.CPUUsage.TotalUsage
	s.CpuStats.CpuUsage.UsageInUsermode = a.CPUStats.CPUUsage.UsageInUsermode
	s.CpuStats.CpuUsage.UsageInKernelmode = a.CPUStats.CPUUsage.UsageInKernelmode
	s.CpuStats.ThrottlingData = cgroups.ThrottlingData(a.CPUStats.ThrottlingData)
	s.MemoryStats.Stats = a.MemoryStats.Stats
	s.MemoryStats.Usage = cgroups.MemoryData{
		Usage: a.MemoryStats.Usage, MaxUsage: a.MemoryStats.MaxUsage, Failcnt: a.MemoryStats.Failcnt,
		Limit: uint64(memoryLimit),
	}
	s.PidsStats = cgroups.PidsStats(a.PidsStats)
	if s.PidsStats.Limit >= unlimited {
		s.PidsStats.Limit = 0 // no limit, as in the cgroups library
	}
	for _, e := range a.BlkioStats.IoServiceBytesRecursive {
		s.BlkioStats.IoServiceBytesRecursive = append(s.BlkioStats.IoServiceBytesRecursive, cgroups.BlkioStatEntry(e))
	}
	for _, e := range a.BlkioStats.IoServicedRecursive {
		s.BlkioStats.IoServicedRecursive = append(s.BlkioStats.IoServicedRecursive, cgroups.BlkioStatEntry(e))
	}
	m := sampleOf(s, a.Read)
	m.processes = a.PidsStats.Current
	return m
}

type sample struct {
	at     time.Time
	cpu    cpuSample
	memory memorySample
	swap   *swapSample // nil if the kernel does not account swap, and in the engine's statistics
	io     ioSample

	processes               uint64
	threads, maxThreads     uint64     // 0 if unknown or unlimited
	hugepages, hugepagesMax []labelled // by page size
}

type cpuSample struct {
	usage, user, system uint64 // nanoseconds
	periods, throttled  uint64
	throttledTime       uint64 // nanoseconds
	pressure            *cgroups.PSIStats
}

type memorySample struct {
	usage, workingSet, rss, cache, mapped uint64
	limit                                 uint64 // the constant unlimited if there is no limit
	faults, majorFaults                   uint64
	maxUsage, failures, kernel, oomKills  uint64
	pressure                              *cgroups.PSIStats
}

type swapSample struct{ usage, limit uint64 }

type ioSample struct {
	devices  []ioDevice
	pressure *cgroups.PSIStats
}

type ioDevice struct {
	device                string // "8:0"
	readBytes, writeBytes uint64
	reads, writes         uint64
}

// Controllers to read: for the stats of containers and pods, and for the metrics.
const (
	shown      = cgroups.CPU | cgroups.Memory | cgroups.IO
	everything = shown | cgroups.Pids | cgroups.HugeTLB
)

func measure(dirs host.CgroupDirs, what cgroups.Controller, at time.Time) sample {
	var m sample
	if dirs.V2() {
		m = measureV2(dirs[""], what, at)
	} else {
		m = measureV1(dirs, what, at)
	}
	pids, _ := cgroups.GetPids(processDir(dirs))
	m.processes = uint64(len(pids))
	return m
}

func measureV2(dir string, what cgroups.Controller, at time.Time) sample {
	manager, err := fs2.NewManager(&cgroups.Cgroup{}, dir)
	if err != nil {
		return sample{}
	}
	// On an error, the values of the other files are still set.
	stats, _ := manager.Stats(&cgroups.StatsOptions{Controllers: what})
	m := sampleOf(stats, at)
	if swap := stats.MemoryStats.SwapOnlyUsage; cgroups.PathExists(filepath.Join(dir, "memory.swap.current")) {
		m.swap = &swapSample{usage: swap.Usage, limit: min(swap.Limit, unlimited)}
	}
	if what == everything {
		m.memory.failures, _ = fscommon.GetValueByKey(dir, "memory.events", "max")
		m.memory.oomKills, _ = fscommon.GetValueByKey(dir, "memory.events", "oom_kill")
		m.hugepagesMax = nil // cgroup v2 does not record the maximum usage
	}
	return m
}

func measureV1(dirs host.CgroupDirs, what cgroups.Controller, at time.Time) sample {
	stats := cgroups.NewStats()
	if what == shown {
		usageV1(dirs, stats)
	} else {
		for controller, group := range map[string]interface {
			GetStats(path string, stats *cgroups.Stats) error
		}{
			"cpu": &fs.CpuGroup{}, "cpuacct": &fs.CpuacctGroup{}, "memory": &fs.MemoryGroup{}, "pids": &fs.PidsGroup{},
			"blkio": &fs.BlkioGroup{}, "hugetlb": &fs.HugetlbGroup{},
		} {
			if dir := dirs[controller]; dir != "" {
				_ = group.GetStats(dir, stats) // a failed controller leaves the others valid
			}
		}
	}
	m := sampleOf(stats, at)
	// The kernel counts memory and swap together.
	if both := stats.MemoryStats.SwapUsage; both.Limit > 0 {
		m.swap = &swapSample{usage: sub(both.Usage, m.memory.usage), limit: unlimited}
		if both.Limit < unlimited {
			m.swap.limit = sub(both.Limit, m.memory.limit)
		}
	}
	if what == everything {
		m.memory.oomKills, _ = fscommon.GetValueByKey(dirs["memory"], "memory.oom_control", "oom_kill")
	}
	return m
}

// usageV1 reads only the values for stats. On version 1 the library would take five times as long.
func usageV1(dirs host.CgroupDirs, stats *cgroups.Stats) {
	memory, swap := &stats.MemoryStats.Usage, &stats.MemoryStats.SwapUsage
	stats.CpuStats.CpuUsage.TotalUsage, _ = fscommon.GetCgroupParamUint(dirs["cpuacct"], "cpuacct.usage")
	memory.Usage, _ = fscommon.GetCgroupParamUint(dirs["memory"], "memory.usage_in_bytes")
	memory.Limit, _ = fscommon.GetCgroupParamUint(dirs["memory"], "memory.limit_in_bytes")
	swap.Usage, _ = fscommon.GetCgroupParamUint(dirs["memory"], "memory.memsw.usage_in_bytes")
	swap.Limit, _ = fscommon.GetCgroupParamUint(dirs["memory"], "memory.memsw.limit_in_bytes")
	table, _ := cgroups.ReadFile(dirs["memory"], "memory.stat")
	for line := range strings.Lines(table) {
		if key, n, err := fscommon.ParseKeyValue(strings.TrimSpace(line)); err == nil {
			stats.MemoryStats.Stats[key] = n
		}
	}
}

// sampleOf converts statistics of either cgroup version. The keys of memory.stat differ between the versions.
func sampleOf(s *cgroups.Stats, at time.Time) sample {
	first := func(names ...string) uint64 {
		for _, name := range names {
			if n, ok := s.MemoryStats.Stats[name]; ok {
				return n
			}
		}
		return 0
	}
	cpu, memory := s.CpuStats, s.MemoryStats
	m := sample{
		at: at,
		cpu: cpuSample{
			usage: cpu.CpuUsage.TotalUsage, user: cpu.CpuUsage.UsageInUsermode, system: cpu.CpuUsage.UsageInKernelmode,
			periods: cpu.ThrottlingData.Periods, throttled: cpu.ThrottlingData.ThrottledPeriods,
			throttledTime: cpu.ThrottlingData.ThrottledTime, pressure: cpu.PSI,
		},
		memory: memorySample{
			usage: memory.Usage.Usage, workingSet: sub(memory.Usage.Usage, first("total_inactive_file", "inactive_file")),
			rss: first("total_rss", "anon"), cache: first("total_cache", "file"), mapped: first("total_mapped_file", "file_mapped"),
			limit:  cmp.Or(min(memory.Usage.Limit, unlimited), unlimited),
			faults: first("total_pgfault", "pgfault"), majorFaults: first("total_pgmajfault", "pgmajfault"),
			maxUsage: memory.Usage.MaxUsage, failures: memory.Usage.Failcnt,
			kernel: cmp.Or(memory.KernelUsage.Usage, first("kernel")), pressure: memory.PSI,
		},
		io:      ioSample{devices: devices(s.BlkioStats), pressure: s.BlkioStats.PSI},
		threads: s.PidsStats.Current, maxThreads: s.PidsStats.Limit,
	}
	for _, size := range slices.Sorted(maps.Keys(s.HugetlbStats)) {
		m.hugepages = append(m.hugepages, labelled{s.HugetlbStats[size].Usage, []string{size}})
		m.hugepagesMax = append(m.hugepagesMax, labelled{s.HugetlbStats[size].MaxUsage, []string{size}})
	}
	return m
}

func devices(b cgroups.BlkioStats) []ioDevice {
	found := map[string]ioDevice{}
	add := func(entries []cgroups.BlkioStatEntry, read, write func(*ioDevice) *uint64) {
		for _, e := range entries {
			name := fmt.Sprintf("%d:%d", e.Major, e.Minor)
			d := found[name]
			switch d.device = name; strings.ToLower(e.Op) {
			case "read":
				*read(&d) = e.Value
			case "write":
				*write(&d) = e.Value
			default:
				continue
			}
			found[name] = d
		}
	}
	add(b.IoServiceBytesRecursive, func(d *ioDevice) *uint64 { return &d.readBytes }, func(d *ioDevice) *uint64 { return &d.writeBytes })
	add(b.IoServicedRecursive, func(d *ioDevice) *uint64 { return &d.reads }, func(d *ioDevice) *uint64 { return &d.writes })
	return slices.SortedFunc(maps.Values(found), func(x, y ioDevice) int { return strings.Compare(x.device, y.device) })
}

func processDir(dirs host.CgroupDirs) string {
	for _, controller := range []string{"", "memory", "cpu", "pids", "freezer"} {
		if dir := dirs[controller]; dir != "" {
			return dir
		}
	}
	return ""
}

// unlimited is the value of a limit that is not set. cgroup v1 reports a greater value, the largest multiple of the page
// size in an int64. cgroup v2 reports "max".
const unlimited = 1 << 62

// sub returns a-b, or 0 if negative: a and b may have been read at different times.
func sub(a, b uint64) uint64 { return a - min(a, b) }
