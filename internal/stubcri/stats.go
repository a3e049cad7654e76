package stubcri

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// stats of a running container: half a core since it started, and memory
// that tells containers apart.
func (s *Server) stats(c *container) *runtimeapi.ContainerStats {
	now := s.now().UnixNano()
	st := &runtimeapi.ContainerStats{
		Attributes: &runtimeapi.ContainerAttributes{
			Id: c.id, Metadata: c.config.GetMetadata(), Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
		},
		WritableLayer: &runtimeapi.FilesystemUsage{
			Timestamp: now, UsedBytes: &runtimeapi.UInt64Value{Value: 8192}, InodesUsed: &runtimeapi.UInt64Value{Value: 7},
		},
	}
	if c.state == runtimeapi.ContainerState_CONTAINER_RUNNING {
		st.Cpu = &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: uint64(now-c.started) / 2}}
		st.Memory = &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: uint64(1+len(c.config.GetMetadata().GetName())) << 20}}
	}
	return st
}

func (r *runtimeService) ContainerStats(_ context.Context, req *runtimeapi.ContainerStatsRequest) (*runtimeapi.ContainerStatsResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	c, err := r.s.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: r.s.stats(c)}, nil
}

func (r *runtimeService) ListContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return &runtimeapi.ListContainerStatsResponse{Stats: r.s.listStats(req.GetFilter())}, nil
}

func (s *Server) listStats(f *runtimeapi.ContainerStatsFilter) []*runtimeapi.ContainerStats {
	var out []*runtimeapi.ContainerStats
	for _, c := range s.sortedContainers() {
		fits := matchID(c.id, f.GetId()) && matchID(c.pod.id, f.GetPodSandboxId()) && hasLabels(c.config.GetLabels(), f.GetLabelSelector())
		if fits || s.o.IgnoreFilters {
			out = append(out, s.stats(c))
		}
	}
	return out
}

func (s *Server) podStats(p *pod) *runtimeapi.PodSandboxStats {
	now := s.now().UnixNano()
	st := &runtimeapi.LinuxPodSandboxStats{
		Cpu:     &runtimeapi.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &runtimeapi.UInt64Value{Value: uint64(now-p.created) / 4}},
		Memory:  &runtimeapi.MemoryUsage{Timestamp: now, WorkingSetBytes: &runtimeapi.UInt64Value{Value: 5 << 20}},
		Process: &runtimeapi.ProcessUsage{Timestamp: now, ProcessCount: &runtimeapi.UInt64Value{Value: 2}},
		Network: &runtimeapi.NetworkUsage{Timestamp: now, DefaultInterface: &runtimeapi.NetworkInterfaceUsage{
			Name: "eth0", RxBytes: &runtimeapi.UInt64Value{Value: 1024}, TxBytes: &runtimeapi.UInt64Value{Value: 2048},
		}},
	}
	for _, c := range s.sortedContainers() {
		if c.pod == p {
			st.Containers = append(st.Containers, s.stats(c))
		}
	}
	return &runtimeapi.PodSandboxStats{
		Attributes: &runtimeapi.PodSandboxAttributes{
			Id: p.id, Metadata: p.config.GetMetadata(), Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(),
		},
		Linux: st,
	}
}

func (r *runtimeService) PodSandboxStats(_ context.Context, req *runtimeapi.PodSandboxStatsRequest) (*runtimeapi.PodSandboxStatsResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	p, err := r.s.podByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: r.s.podStats(p)}, nil
}

func (r *runtimeService) ListPodSandboxStats(_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	return &runtimeapi.ListPodSandboxStatsResponse{Stats: r.s.listPodStats(req.GetFilter())}, nil
}

func (s *Server) listPodStats(f *runtimeapi.PodSandboxStatsFilter) []*runtimeapi.PodSandboxStats {
	var out []*runtimeapi.PodSandboxStats
	for _, p := range s.sortedPods() {
		fits := matchID(p.id, f.GetId()) && hasLabels(p.config.GetLabels(), f.GetLabelSelector())
		if p.ready && (fits || s.o.IgnoreFilters) {
			out = append(out, s.podStats(p))
		}
	}
	return out
}

func (r *runtimeService) ListMetricDescriptors(context.Context, *runtimeapi.ListMetricDescriptorsRequest) (*runtimeapi.ListMetricDescriptorsResponse, error) {
	return &runtimeapi.ListMetricDescriptorsResponse{Descriptors: []*runtimeapi.MetricDescriptor{{
		Name: "container_processes", Help: "Number of processes.", LabelKeys: []string{"id", "name"},
	}}}, nil
}

func (r *runtimeService) ListPodSandboxMetrics(context.Context, *runtimeapi.ListPodSandboxMetricsRequest) (*runtimeapi.ListPodSandboxMetricsResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	var out []*runtimeapi.PodSandboxMetrics
	for _, p := range r.s.sortedPods() {
		out = append(out, &runtimeapi.PodSandboxMetrics{PodSandboxId: p.id, Metrics: []*runtimeapi.Metric{{
			Name: "container_processes", Timestamp: r.s.now().UnixNano(), MetricType: runtimeapi.MetricType_GAUGE,
			LabelValues: []string{p.id, p.config.GetMetadata().GetName()}, Value: &runtimeapi.UInt64Value{Value: 2},
		}}})
	}
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: out}, nil
}
