package stats

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// ContainerStats measures one container. One that does not run has its
// attributes and what it has written, and no usage.
func (s *Service) ContainerStats(ctx context.Context, r *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	t, err := s.inspect(ctx, r.GetContainerId())
	if err != nil {
		return nil, err
	}
	if t.isSandbox() {
		return nil, fmt.Errorf("container %s is a pod sandbox: %w", t.c.ID, errdefs.ErrNotFound)
	}
	if !t.running() {
		return &runtimeapi.ContainerStatsResponse{Stats: s.idle(t, s.beginLayers(t))}, nil
	}
	m, ok, err := s.read(ctx, t, measureUsage)
	if err != nil {
		return nil, err
	}
	if !ok {
		return &runtimeapi.ContainerStatsResponse{Stats: s.idle(t, s.beginLayers(t))}, nil
	}
	return &runtimeapi.ContainerStatsResponse{Stats: s.containerStats(t, m, s.beginLayers(t))}, nil
}

// ListContainerStats measures the containers that run.
func (s *Service) ListContainerStats(ctx context.Context, r *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	stats, err := s.listContainers(ctx, r.GetFilter())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListContainerStatsResponse{Stats: stats}, nil
}

// listContainers does the work of ListContainerStats.
func (s *Service) listContainers(ctx context.Context, f *runtimeapi.ContainerStatsFilter) ([]*runtimeapi.ContainerStats, error) {
	labels := []string{state.LabelType + "=" + state.TypeContainer}
	for k, v := range f.GetLabelSelector() {
		labels = append(labels, state.EncodeLabelKey(k)+"="+v)
	}
	wanted := func(c container.Summary) bool {
		return strings.HasPrefix(c.ID, f.GetId()) && strings.HasPrefix(c.Labels[state.LabelSandboxID], f.GetPodSandboxId())
	}
	ts, err := s.targets(ctx, wanted, labels...)
	if err != nil {
		return nil, err
	}
	if len(labels) == 1 && f.GetId() == "" && f.GetPodSandboxId() == "" {
		s.forgetContainers(ts)
	}
	until := s.beginLayers(ts...)
	samples, err := s.collect(ctx, ts, measureUsage)
	if err != nil {
		return nil, err
	}
	out := make([]*runtimeapi.ContainerStats, 0, len(ts))
	for _, t := range ts {
		if m, ok := samples[t.c.ID]; ok {
			out = append(out, s.containerStats(t, m, until))
		}
	}
	return out, nil
}

// forgetContainers drops the rates of containers that no longer run.
func (s *Service) forgetContainers(all []target) {
	alive := map[string]bool{}
	for _, t := range all {
		alive[t.c.ID] = true
	}
	s.rates.keep(func(id string) bool { return alive[id] || strings.HasPrefix(id, podPrefix) })
}

func (s *Service) containerStats(t target, m sample, until time.Time) *runtimeapi.ContainerStats {
	stats := s.idle(t, until)
	stats.Cpu = s.cpuUsage(t.c.ID, m)
	stats.Memory = memoryUsage(m)
	stats.Swap = swapUsage(m)
	stats.Io = ioUsage(m)
	return stats
}

// idle is what can be said of a container without processes.
func (s *Service) idle(t target, until time.Time) *runtimeapi.ContainerStats {
	stats := &runtimeapi.ContainerStats{Attributes: t.attributes()}
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
	u := &runtimeapi.CpuUsage{Timestamp: m.at.UnixNano(), UsageCoreNanoSeconds: value(m.cpu.usage), Psi: m.cpu.pressure.cri()}
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
		Psi:             m.memory.pressure.cri(),
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
	return &runtimeapi.IoUsage{Timestamp: m.at.UnixNano(), Psi: m.io.pressure.cri()}
}
