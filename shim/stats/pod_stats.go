package stats

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/host/proctree"
	"github.com/crishim/crishim/shim/state"
)

// PodSandboxStats measures one pod: its network, its containers, and all of it.
func (s *Service) PodSandboxStats(ctx context.Context, r *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	t, err := s.inspect(ctx, r.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !t.isSandbox() {
		return nil, fmt.Errorf("container %s is not a pod sandbox: %w", t.c.ID, errdefs.ErrNotFound)
	}
	if !t.running() {
		return nil, fmt.Errorf("pod sandbox %s is not running: %w", t.c.ID, errdefs.ErrFailedPrecondition)
	}
	stats, err := s.pods(ctx, []target{t}, state.LabelSandboxID+"="+t.c.ID)
	if err != nil {
		return nil, err
	}
	if len(stats) == 0 {
		return nil, fmt.Errorf("pod sandbox %s has ended: %w", t.c.ID, errdefs.ErrNotFound)
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: stats[0]}, nil
}

// ListPodSandboxStats measures the pods that run.
func (s *Service) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	stats, err := s.listPods(ctx, r.GetFilter())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: stats}, nil
}

// listPods does the work of ListPodSandboxStats.
func (s *Service) listPods(ctx context.Context, f *runtimeapi.PodSandboxStatsFilter) ([]*runtimeapi.PodSandboxStats, error) {
	labels := []string{state.LabelType + "=" + state.TypeSandbox}
	for k, v := range f.GetLabelSelector() {
		labels = append(labels, state.EncodeLabelKey(k)+"="+v)
	}
	all, err := s.targets(ctx, nil, labels...)
	if err != nil {
		return nil, err
	}
	var sandboxes []target
	for _, t := range all {
		if strings.HasPrefix(t.c.ID, f.GetId()) {
			sandboxes = append(sandboxes, t)
		}
	}
	return s.pods(ctx, sandboxes)
}

// pods measures sandboxes and the containers in them; labels narrow the search
// for containers.
func (s *Service) pods(ctx context.Context, sandboxes []target, labels ...string) ([]*runtimeapi.PodSandboxStats, error) {
	members, err := s.targets(ctx, nil, append(labels, state.LabelType+"="+state.TypeContainer)...)
	if err != nil {
		return nil, err
	}
	until := s.beginLayers(members...)
	samples, err := s.collect(ctx, append(append([]target{}, sandboxes...), members...), measureUsage)
	if err != nil {
		return nil, err
	}
	if len(labels) == 0 {
		s.forget(sandboxes, members)
	}
	out := make([]*runtimeapi.PodSandboxStats, 0, len(sandboxes))
	for _, sandbox := range sandboxes {
		if own, ok := samples[sandbox.c.ID]; ok {
			out = append(out, s.podStats(sandbox, own, members, samples, until))
		}
	}
	return out, nil
}

// forget drops the rates of what no longer runs, when everything was listed.
func (s *Service) forget(lists ...[]target) {
	alive := map[string]bool{}
	for _, list := range lists {
		for _, t := range list {
			alive[t.c.ID], alive[podKey(t)] = true, true
		}
	}
	s.rates.keep(func(id string) bool { return alive[id] })
}

// podKey names a pod's rate beside those of containers.
func podKey(t target) string { return podPrefix + t.sandboxID() }

const podPrefix = "pod/"

func (s *Service) podStats(sandbox target, own sample, members []target, samples map[string]sample, until time.Time) *runtimeapi.PodSandboxStats {
	stats := &runtimeapi.LinuxPodSandboxStats{}
	total := own
	for _, t := range members {
		m, ok := samples[t.c.ID]
		if !ok || t.member.SandboxID != sandbox.c.ID {
			continue
		}
		stats.Containers = append(stats.Containers, s.containerStats(t, m, until))
		total = add(total, m)
	}
	if dirs, ok := podCgroups(sandbox); ok {
		processes := total.processes // a parent lists none of its children's
		total = measureUsage(dirs, own.at)
		total.processes = processes
	}
	stats.Cpu = s.cpuUsage(podKey(sandbox), total)
	stats.Memory = memoryUsage(total)
	stats.Io = ioUsage(total)
	stats.Process = &runtimeapi.ProcessUsage{Timestamp: total.at.UnixNano(), ProcessCount: value(total.processes)}
	stats.Network = networkUsage(podNetwork(sandbox), own.at)
	return &runtimeapi.PodSandboxStats{Attributes: sandbox.podAttributes(), Linux: stats}
}

// podNetwork is empty for a pod on the host's network, which is nobody's own.
func podNetwork(sandbox target) []netInterface {
	if sandbox.c.HostConfig.NetworkMode.IsHost() {
		return nil
	}
	process, err := proctree.Find(sandbox.c.State.Pid)
	if err != nil || !process.InContainer(sandbox.c.ID) {
		return nil // the pid is not of this host
	}
	interfaces, err := readNetwork(process.PID)
	if err != nil || !process.Alive() { // or what was read may be somebody else's
		return nil
	}
	return interfaces
}

// podCgroups is the cgroup that a kubelet made for the pod: it holds the pod's
// uid in its name, and counts what containers used that are gone. A parent
// that several pods share says nothing about one of them.
func podCgroups(sandbox target) (host.CgroupDirs, bool) {
	uid := sandbox.sandbox.Metadata.GetUid()
	dirs, err := host.Cgroups(sandbox.c.State.Pid, sandbox.c.ID)
	if err != nil || uid == "" {
		return nil, false
	}
	parents := host.CgroupDirs{}
	for controller, dir := range dirs {
		parent := filepath.Dir(dir)
		name := filepath.Base(parent)
		if !strings.Contains(name, uid) && !strings.Contains(name, strings.ReplaceAll(uid, "-", "_")) {
			return nil, false
		}
		parents[controller] = parent
	}
	return parents, true
}

// add sums two cgroups of a pod. Pressures cannot be added.
func add(a, b sample) sample {
	a.cpu.usage += b.cpu.usage
	a.cpu.pressure, a.memory.pressure, a.io.pressure = nil, nil, nil
	a.memory.usage += b.memory.usage
	a.memory.workingSet += b.memory.workingSet
	a.memory.rss += b.memory.rss
	a.memory.faults += b.memory.faults
	a.memory.majorFaults += b.memory.majorFaults
	a.memory.limit = unlimited
	a.processes += b.processes
	return a
}
