package stats

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/prometheus/procfs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

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
	stats, err := s.pods(ctx, []target{t}, false, state.LabelSandboxID+"="+t.c.ID)
	if err != nil {
		return nil, err
	}
	if len(stats) == 0 {
		return nil, fmt.Errorf("pod sandbox %s has ended: %w", t.c.ID, errdefs.ErrNotFound)
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: stats[0]}, nil
}

func (s *Service) ListPodSandboxStats(ctx context.Context, r *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	f := r.GetFilter()
	labels := labelFilter(state.TypeSandbox, f.GetLabelSelector())
	sandboxes, err := s.targets(ctx, func(c container.Summary) bool { return strings.HasPrefix(c.ID, f.GetId()) }, labels...)
	if err != nil {
		return nil, err
	}
	// The engine also matches labels that come from the image.
	sandboxes = slices.DeleteFunc(sandboxes, func(t target) bool { return !state.MatchLabels(t.sandbox.Labels, f.GetLabelSelector()) })
	stats, err := s.pods(ctx, sandboxes, len(labels) == 1 && f.GetId() == "")
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: stats}, nil
}

// pods measures sandboxes and their containers. labels filter the containers.
func (s *Service) pods(ctx context.Context, sandboxes []target, all bool, labels ...string) ([]*runtimeapi.PodSandboxStats, error) {
	members, err := s.targets(ctx, nil, append(labels, state.LabelType+"="+state.TypeContainer)...)
	if err != nil {
		return nil, err
	}
	if all {
		alive := map[string]bool{}
		for _, t := range slices.Concat(sandboxes, members) {
			alive[t.c.ID], alive[podPrefix+t.c.ID] = true, true
		}
		s.rates.keep(func(id string) bool { return alive[id] })
	}
	until := s.beginLayers(members...)
	samples, err := s.collect(ctx, slices.Concat(sandboxes, members), shown)
	if err != nil {
		return nil, err
	}
	out := make([]*runtimeapi.PodSandboxStats, 0, len(sandboxes))
	for _, sandbox := range sandboxes {
		if own, ok := samples[sandbox.c.ID]; ok {
			out = append(out, s.podStats(sandbox, own, members, samples, until))
		}
	}
	return out, nil
}

// podPrefix distinguishes a pod's rates from those of the sandbox container, which has the same id.
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
		processes := total.processes // a parent cgroup does not include the processes of its children
		total = measure(dirs, shown, own.at)
		total.processes = processes
	}
	stats.Cpu = s.cpuUsage(podPrefix+sandbox.c.ID, total)
	stats.Memory = memoryUsage(total)
	stats.Io = ioUsage(total)
	stats.Process = &runtimeapi.ProcessUsage{Timestamp: total.at.UnixNano(), ProcessCount: value(total.processes)}
	stats.Network = networkUsage(podNetwork(sandbox), own.at)
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: sandbox.c.ID, Metadata: sandbox.sandbox.Metadata, Labels: sandbox.sandbox.Labels, Annotations: sandbox.sandbox.Annotations,
		},
		Linux: stats,
	}
}

func podNetwork(sandbox target) []procfs.NetDevLine {
	if sandbox.c.HostConfig.NetworkMode.IsHost() || sandbox.dirs == nil {
		return nil
	}
	p, err := procfs.NewProc(sandbox.c.State.Pid)
	if err != nil {
		return nil
	}
	interfaces, err := p.NetDev()
	if err != nil {
		return nil
	}
	if _, err := host.Cgroups(p.PID, sandbox.c.ID); err != nil {
		return nil // the process has ended, so the interfaces may belong to another
	}
	delete(interfaces, "lo")
	return slices.SortedFunc(maps.Values(interfaces), func(a, b procfs.NetDevLine) int { return strings.Compare(a.Name, b.Name) })
}

func networkUsage(interfaces []procfs.NetDevLine, at time.Time) *runtimeapi.NetworkUsage {
	if len(interfaces) == 0 {
		return nil
	}
	u := &runtimeapi.NetworkUsage{Timestamp: at.UnixNano()}
	for _, i := range interfaces {
		usage := &runtimeapi.NetworkInterfaceUsage{
			Name: i.Name, RxBytes: value(i.RxBytes), RxErrors: value(i.RxErrors), TxBytes: value(i.TxBytes), TxErrors: value(i.TxErrors),
		}
		if i.Name == "eth0" { // every network plugin uses this name
			u.DefaultInterface = usage
		} else {
			u.Interfaces = append(u.Interfaces, usage)
		}
	}
	return u
}

// podCgroups returns the kubelet's cgroup for the pod, which also accounts removed containers. Its name contains the
// pod's uid; any other parent may be shared.
func podCgroups(sandbox target) (host.CgroupDirs, bool) {
	uid := sandbox.sandbox.Metadata.GetUid()
	if sandbox.dirs == nil || uid == "" {
		return nil, false
	}
	parents := host.CgroupDirs{}
	for controller, dir := range sandbox.dirs {
		parent := filepath.Dir(dir)
		name := filepath.Base(parent)
		if !strings.Contains(name, uid) && !strings.Contains(name, strings.ReplaceAll(uid, "-", "_")) {
			return nil, false
		}
		parents[controller] = parent
	}
	return parents, true
}

// add sums two cgroups of a pod. Pressure values cannot be summed.
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
