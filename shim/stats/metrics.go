package stats

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

func (s *Service) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: descriptors()}, nil
}

// ListPodSandboxMetrics requires the engine's host, because the engine's statistics lack most metrics.
func (s *Service) ListPodSandboxMetrics(ctx context.Context, _ *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	s.forget()
	sandboxes, err := s.targets(ctx, nil, state.LabelType+"="+state.TypeSandbox)
	if err != nil {
		return nil, err
	}
	if err := s.onHost(ctx, sandboxes); err != nil {
		return nil, err
	}
	members, err := s.targets(ctx, nil, state.LabelType+"="+state.TypeContainer)
	if err != nil {
		return nil, err
	}
	until := s.beginLayers(members...)
	samples, err := s.collect(ctx, members, everything)
	if err != nil {
		return nil, err
	}
	out := &runtimeapi.ListPodSandboxMetricsResponse{}
	for _, sandbox := range sandboxes {
		pod := &runtimeapi.PodSandboxMetrics{PodSandboxId: sandbox.c.ID, Metrics: podMetrics(sandbox)}
		for _, t := range members {
			m, ok := samples[t.c.ID]
			if !ok || t.member.SandboxID != sandbox.c.ID {
				continue
			}
			v, err := s.view(t, m, until)
			if err != nil {
				return nil, err
			}
			labels, values := labelsOf(t.member.Metadata.GetName(), t, t.member.Pod), []*runtimeapi.Metric{}
			for _, m := range containerMetrics() {
				for _, l := range m.values(v) {
					values = append(values, &runtimeapi.Metric{
						Name: m.name, MetricType: m.kind, Value: value(l.value), LabelValues: slices.Concat(labels, l.labels),
					})
				}
			}
			pod.ContainerMetrics = append(pod.ContainerMetrics, &runtimeapi.ContainerMetrics{ContainerId: t.c.ID, Metrics: values})
		}
		out.PodMetrics = append(out.PodMetrics, pod)
	}
	return out, nil
}

// onHost returns an error if no running sandbox has its processes on this host.
func (s *Service) onHost(ctx context.Context, sandboxes []target) error {
	if slices.ContainsFunc(sandboxes, func(t target) bool { return t.dirs != nil }) {
		return nil // the engine is on this host; a sandbox without a process here has just ended
	}
	for _, t := range sandboxes {
		again, inspectErr := s.inspect(ctx, t.c.ID)
		if inspectErr == nil && again.running() && again.c.State.Pid == t.c.State.Pid {
			return fmt.Errorf("metrics of pods can be had only on the engine's host: %w: %w", host.ErrElsewhere, errdefs.ErrNotImplemented)
		}
	}
	return nil
}

func labelsOf(container string, t target, pod *runtimeapi.PodSandboxMetadata) []string {
	return []string{container, t.c.ID, t.c.Config.Image, strings.TrimPrefix(t.c.Name, "/"), pod.GetNamespace(), pod.GetName()}
}

func podMetrics(sandbox target) []*runtimeapi.Metric {
	base := labelsOf("", sandbox, sandbox.sandbox.Metadata)
	var out []*runtimeapi.Metric
	for _, i := range podNetwork(sandbox) {
		for _, m := range networkMetrics() {
			out = append(out, &runtimeapi.Metric{
				Name: m.name, MetricType: counter, Value: value(m.pick(i)), LabelValues: slices.Concat(base, []string{i.Name}),
			})
		}
	}
	return out
}

type containerView struct {
	m       sample
	started uint64 // Unix time in seconds
	spec    container.Resources
	fs      *fsView

	files, sockets, openFiles *uint64 // nil if unreadable; openFiles is the limit on open files
}

type fsView struct {
	device                         string
	used, size, inodes, inodesFree uint64
}

func (s *Service) view(t target, m sample, until time.Time) (*containerView, error) {
	started, err := convert.UnixNano(t.c.State.StartedAt)
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", t.c.ID, err)
	}
	v := &containerView{m: m, started: uint64(started) / 1e9, spec: t.c.HostConfig.Resources, fs: s.filesystem(t, until)}
	if t.dirs == nil {
		return v, nil
	}
	if process, err := procfs.NewProc(t.c.State.Pid); err == nil {
		if limits, err := process.Limits(); err == nil {
			v.openFiles = &limits.OpenFiles
		}
	}
	// Count open files. Processes that end in the meantime or belong to another user are skipped.
	v.files, v.sockets = new(uint64), new(uint64)
	processes, _ := cgroups.GetPids(processDir(t.dirs))
	for _, pid := range processes {
		process, err := procfs.NewProc(pid)
		if err != nil {
			continue
		}
		targets, err := process.FileDescriptorTargets()
		if err != nil {
			continue
		}
		*v.files += uint64(len(targets))
		for _, target := range targets {
			if strings.HasPrefix(target, "socket:") {
				*v.sockets++
			}
		}
	}
	return v, nil
}

func (s *Service) filesystem(t target, until time.Time) *fsView {
	size, ok := s.layer(t, until)
	if !ok {
		return nil
	}
	on := cmp.Or(t.c.GraphDriver.Data["UpperDir"], size.root)
	var st syscall.Statfs_t
	if syscall.Statfs(on, &st) != nil {
		return nil
	}
	v := &fsView{used: size.bytes, size: st.Blocks * uint64(st.Bsize), inodes: st.Files, inodesFree: st.Ffree}
	var dir syscall.Stat_t
	if syscall.Stat(on, &dir) == nil {
		v.device = fmt.Sprintf("%d:%d", unix.Major(dir.Dev), unix.Minor(dir.Dev))
		if target, err := os.Readlink("/sys/dev/block/" + v.device); err == nil {
			v.device = "/dev/" + filepath.Base(target)
		}
	}
	return v
}
