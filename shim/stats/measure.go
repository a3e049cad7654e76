package stats

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/opencontainers/cgroups"

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
