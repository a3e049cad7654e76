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
	"strconv"
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

// collect measures many targets. Those that ended are left out, and those that
// the engine does not answer for in time.
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
			return s.forgive(ts[i].c.ID, err)
		}
		mu.Lock()
		defer mu.Unlock()
		out[ts[i].c.ID] = m
		return nil
	})
	return out, err
}

// read measures a running target, from files or else by the engine. ok is false
// where it has ended meanwhile.
func (s *Service) read(ctx context.Context, t target, what cgroups.Controller) (m sample, ok bool, err error) {
	dirs, err := host.Cgroups(t.c.State.Pid, t.c.ID)
	if err == nil {
		m = measure(dirs, what, s.now())
		if m.cpu.usage > 0 || m.memory.usage > 0 {
			return m, true, nil
		}
	}
	m, err = s.readEngine(ctx, t.c.ID)
	if errdefs.IsNotFound(err) || errors.Is(err, errNotRunning) {
		return m, false, nil
	}
	return m, err == nil, err
}

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

// fromEngine reads the engine's answer, which is what its runtime's library has read.
func fromEngine(a container.StatsResponse) sample {
	s := cgroups.NewStats()
	s.CpuStats.CpuUsage.TotalUsage = a.CPUStats.CPUUsage.TotalUsage
	s.CpuStats.CpuUsage.UsageInUsermode = a.CPUStats.CPUUsage.UsageInUsermode
	s.CpuStats.CpuUsage.UsageInKernelmode = a.CPUStats.CPUUsage.UsageInKernelmode
	s.CpuStats.ThrottlingData = cgroups.ThrottlingData(a.CPUStats.ThrottlingData)
	s.MemoryStats.Stats = a.MemoryStats.Stats
	s.MemoryStats.Usage = cgroups.MemoryData{
		Usage: a.MemoryStats.Usage, MaxUsage: a.MemoryStats.MaxUsage, Failcnt: a.MemoryStats.Failcnt,
		Limit: a.MemoryStats.Stats["hierarchical_memory_limit"], // else the engine names the host's memory
	}
	s.PidsStats = cgroups.PidsStats(a.PidsStats)
	if s.PidsStats.Limit >= unlimited {
		s.PidsStats.Limit = 0 // as the files' reader has it
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

// sample is what was measured of one cgroup at one time.
type sample struct {
	at     time.Time
	cpu    cpuSample
	memory memorySample
	swap   *swapSample // nil where the kernel does not count it
	io     ioSample

	processes               uint64
	threads, maxThreads     uint64     // 0 where they are not known; no limit is 0 too
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
	limit                                 uint64 // unlimited where there is none
	faults, majorFaults                   uint64
	maxUsage, failures, kernel, oomKills  uint64
	pressure                              *cgroups.PSIStats
}

type swapSample struct{ usage, limit uint64 }

type ioSample struct {
	devices  []ioDevice
	pressure *cgroups.PSIStats
}

// ioDevice is the traffic with one block device, by its numbers.
type ioDevice struct {
	device                string // "8:0"
	readBytes, writeBytes uint64
	reads, writes         uint64
}

// What is read of a cgroup: what the stats of containers and pods show, or what
// the metrics are made of.
const (
	shown      = cgroups.CPU | cgroups.Memory | cgroups.IO
	everything = shown | cgroups.Pids | cgroups.HugeTLB
)

// measure reads the files of a cgroup. What they do not tell is zero.
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
	// With an error come the numbers of the other files.
	stats, _ := manager.Stats(&cgroups.StatsOptions{Controllers: what})
	m := sampleOf(stats, at)
	if swap := stats.MemoryStats.SwapOnlyUsage; cgroups.PathExists(filepath.Join(dir, "memory.swap.current")) {
		m.swap = &swapSample{usage: swap.Usage, limit: min(swap.Limit, unlimited)}
	}
	if what == everything {
		m.memory.failures, _ = fscommon.GetValueByKey(dir, "memory.events", "max")
		m.memory.oomKills, _ = fscommon.GetValueByKey(dir, "memory.events", "oom_kill")
		m.hugepagesMax = nil // version 2 does not count them
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
				_ = group.GetStats(dir, stats) // what it could not read is no reason to leave the others out
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

// usageV1 reads what is shown. The library reads four times as many files for it on
// version 1, and takes five times as long: more than a list of 200 containers may.
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

// sampleOf takes what is reported out of what was read, by the kernel or the engine.
// The table of memory has the kernel's names: those of version 1 or of version 2.
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
	found := map[string]*ioDevice{}
	of := func(e cgroups.BlkioStatEntry) *ioDevice {
		name := strconv.FormatUint(e.Major, 10) + ":" + strconv.FormatUint(e.Minor, 10)
		if found[name] == nil {
			found[name] = &ioDevice{device: name}
		}
		return found[name]
	}
	for _, e := range b.IoServiceBytesRecursive {
		switch e.Op {
		case "Read", "read":
			of(e).readBytes = e.Value
		case "Write", "write":
			of(e).writeBytes = e.Value
		}
	}
	for _, e := range b.IoServicedRecursive {
		switch e.Op {
		case "Read", "read":
			of(e).reads = e.Value
		case "Write", "write":
			of(e).writes = e.Value
		}
	}
	var out []ioDevice
	for _, name := range slices.Sorted(maps.Keys(found)) {
		out = append(out, *found[name])
	}
	return out
}

// processDir is a directory that lists the processes; on version 1 all hierarchies do.
func processDir(dirs host.CgroupDirs) string {
	for _, controller := range []string{"", "memory", "cpu", "pids", "freezer"} {
		if dir := dirs[controller]; dir != "" {
			return dir
		}
	}
	return ""
}

// unlimited is what counts as no limit: cgroup v1 writes the largest multiple of the
// page size, v2 the word "max". No limit of a container is 0.
const unlimited = 1 << 62

// sub is a-b, 0 where the two were read at unlucky moments.
func sub(a, b uint64) uint64 { return a - min(a, b) }
