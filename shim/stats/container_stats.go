package stats

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/opencontainers/cgroups"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// ContainerStats returns no usage for a container that does not run.
func (s *Service) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	t, err := s.inspect(ctx, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if t.isSandbox() {
		return nil, fmt.Errorf("container %s is a pod sandbox: %w", t.c.ID, errdefs.ErrNotFound)
	}
	if t.running() {
		m, ok, err := s.read(ctx, t, shown)
		if err != nil {
			return nil, err
		}
		if ok {
			return &runtimeapi.ContainerStatsResponse{Stats: s.containerStats(t, m, s.beginLayers(t))}, nil
		}
	}
	return &runtimeapi.ContainerStatsResponse{Stats: s.idle(t, s.beginLayers(t))}, nil
}

func (s *Service) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	f := r.GetFilter()
	labels := labelFilter(state.TypeContainer, f.GetLabelSelector())
	wanted := func(c container.Summary) bool {
		return strings.HasPrefix(c.ID, f.GetId()) && strings.HasPrefix(c.Labels[state.LabelSandboxID], f.GetPodSandboxId())
	}
	ts, err := s.targets(ctx, wanted, labels...)
	if err != nil {
		return nil, err
	}
	// The engine also matches labels that come from the image.
	ts = slices.DeleteFunc(ts, func(t target) bool { return !state.MatchLabels(t.member.Labels, f.GetLabelSelector()) })
	if len(labels) == 1 && f.GetId() == "" && f.GetPodSandboxId() == "" { // the list is complete, so missing containers have ended
		alive := map[string]bool{}
		for _, t := range ts {
			alive[t.c.ID] = true
		}
		s.rates.keep(func(id string) bool { return alive[id] || strings.HasPrefix(id, podPrefix) })
	}
	until := s.beginLayers(ts...)
	samples, err := s.collect(ctx, ts, shown)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.ListContainerStatsResponse{}
	for _, t := range ts {
		if m, ok := samples[t.c.ID]; ok {
			out.Stats = append(out.Stats, s.containerStats(t, m, until))
		}
	}
	return out, nil
}

func (s *Service) containerStats(t target, m sample, until time.Time) *runtimeapi.ContainerStats {
	stats := s.idle(t, until)
	stats.Cpu = s.cpuUsage(t.c.ID, m)
	stats.Memory = memoryUsage(m)
	stats.Swap = swapUsage(m)
	stats.Io = ioUsage(m)
	return stats
}

func (s *Service) idle(t target, until time.Time) *runtimeapi.ContainerStats {
	stats := &runtimeapi.ContainerStats{Attributes: &runtimeapi.ContainerAttributes{
		Id: t.c.ID, Metadata: t.member.Metadata, Labels: t.member.Labels, Annotations: t.member.Annotations,
	}}
	if size, ok := s.layer(t, until); ok {
		stats.WritableLayer = &runtimeapi.FilesystemUsage{
			Timestamp: size.at.UnixNano(),
			FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: size.root},
			UsedBytes: value(size.bytes),
		}
		if size.inodes > 0 {
			stats.WritableLayer.InodesUsed = value(size.inodes)
		}
	}
	return stats
}

func (s *Service) cpuUsage(id string, m sample) *runtimeapi.CpuUsage {
	u := &runtimeapi.CpuUsage{Timestamp: m.at.UnixNano(), UsageCoreNanoSeconds: value(m.cpu.usage), Psi: psi(m.cpu.pressure)}
	if rate := s.rates.add(id, m.at, m.cpu.usage); rate != nil {
		u.UsageNanoCores = value(*rate)
	}
	return u
}

func memoryUsage(m sample) *runtimeapi.MemoryUsage {
	u := &runtimeapi.MemoryUsage{
		Timestamp:       m.at.UnixNano(),
		WorkingSetBytes: value(m.memory.workingSet),
		UsageBytes:      value(m.memory.usage),
		RssBytes:        value(m.memory.rss),
		PageFaults:      value(m.memory.faults),
		MajorPageFaults: value(m.memory.majorFaults),
		Psi:             psi(m.memory.pressure),
	}
	if m.memory.limit < unlimited {
		u.AvailableBytes = value(sub(m.memory.limit, m.memory.workingSet))
	}
	return u
}

func swapUsage(m sample) *runtimeapi.SwapUsage {
	if m.swap == nil {
		return nil
	}
	u := &runtimeapi.SwapUsage{Timestamp: m.at.UnixNano(), SwapUsageBytes: value(m.swap.usage)}
	if m.swap.limit < unlimited {
		u.SwapAvailableBytes = value(sub(m.swap.limit, m.swap.usage))
	}
	return u
}

func ioUsage(m sample) *runtimeapi.IoUsage {
	if m.io.pressure == nil {
		return nil
	}
	return &runtimeapi.IoUsage{Timestamp: m.at.UnixNano(), Psi: psi(m.io.pressure)}
}

func psi(p *cgroups.PSIStats) *runtimeapi.PsiStats {
	if p == nil {
		return nil
	}
	data := func(d cgroups.PSIData) *runtimeapi.PsiData {
		return &runtimeapi.PsiData{Total: d.Total * uint64(time.Microsecond), Avg10: d.Avg10, Avg60: d.Avg60, Avg300: d.Avg300}
	}
	return &runtimeapi.PsiStats{Some: data(p.Some), Full: data(p.Full)}
}

func value(n uint64) *runtimeapi.UInt64Value { return &runtimeapi.UInt64Value{Value: n} }

// rateWindow is the minimum time between two samples for a rate. Shorter intervals are mostly noise.
const rateWindow = 500 * time.Millisecond

type rates struct {
	mu   sync.Mutex // guards last
	last map[string]point
}

type point struct {
	at    time.Time
	usage uint64
	rate  *uint64
}

func (r *rates) add(id string, at time.Time, usage uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]point{}
	}
	before, ok := r.last[id]
	elapsed := at.Sub(before.at)
	switch {
	case !ok || usage < before.usage || elapsed < 0: // the clock may have been set back
		r.last[id] = point{at: at, usage: usage}
		return nil
	case elapsed < rateWindow:
		return before.rate
	}
	rate := uint64(float64(usage-before.usage) / elapsed.Seconds())
	r.last[id] = point{at: at, usage: usage, rate: &rate}
	return &rate
}

func (r *rates) keep(alive func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	maps.DeleteFunc(r.last, func(id string, _ point) bool { return !alive(id) })
}
