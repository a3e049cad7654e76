package stubcri

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

type runtimeService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	s *Server
}

func (r *runtimeService) RunPodSandbox(_ context.Context, req *runtimeapi.RunPodSandboxRequest) (*runtimeapi.RunPodSandboxResponse, error) {
	s := r.s
	m := req.GetConfig().GetMetadata()
	if m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "" {
		return nil, status.Error(codes.InvalidArgument, "the pod's metadata needs name, namespace and uid")
	}
	for _, p := range s.pods {
		o := p.config.GetMetadata()
		if o.GetName() == m.GetName() && o.GetNamespace() == m.GetNamespace() && o.GetUid() == m.GetUid() && o.GetAttempt() == m.GetAttempt() {
			return nil, status.Errorf(codes.AlreadyExists, "pod sandbox %q is reserved for %q", m.GetName(), p.id)
		}
	}
	config := req.GetConfig()
	if s.o.LabelPods {
		config = withPodLabels(config)
	}
	p := &pod{id: s.newID("pod"), config: config, handler: req.GetRuntimeHandler(), created: s.now().UnixNano(), ready: true}
	p.ip = fmt.Sprintf("10.88.0.%d", s.seq%250+2)
	s.pods[p.id] = p
	return &runtimeapi.RunPodSandboxResponse{PodSandboxId: p.id}, nil
}

// withPodLabels returns a config with the labels that CRI-O adds (populateSandboxLabels).
func withPodLabels(config *runtimeapi.PodSandboxConfig) *runtimeapi.PodSandboxConfig {
	m := config.GetMetadata()
	labels := map[string]string{
		kube.LabelPodName: m.GetName(), kube.LabelPodNamespace: m.GetNamespace(), kube.LabelPodUID: m.GetUid(),
	}
	maps.Copy(labels, config.GetLabels())
	labels[kube.LabelContainerName] = "POD"
	config = proto.CloneOf(config)
	config.Labels = labels
	return config
}

func (r *runtimeService) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	if p, err := r.s.podByID(req.GetPodSandboxId()); err == nil {
		r.s.stopPod(p)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Server) stopPod(p *pod) {
	for _, c := range s.sortedContainers() {
		if c.pod == p {
			s.exit(c, 137)
		}
	}
	p.ready = false
}

func (r *runtimeService) RemovePodSandbox(_ context.Context, req *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	if p, err := r.s.podByID(req.GetPodSandboxId()); err == nil {
		r.s.stopPod(p)
		for id, c := range r.s.containers {
			if c.pod == p {
				delete(r.s.containers, id)
			}
		}
		delete(r.s.pods, p.id)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}

func (r *runtimeService) PodSandboxStatus(_ context.Context, req *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	p, err := r.s.podByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: p.status()}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": `{"pid":4242,"runtimeSpec":{"ociVersion":"1.1.0"}}`}
		if len(p.config.GetPortMappings()) > 0 { // as containerd
			config, _ := json.Marshal(p.config)
			resp.Info["info"] = `{"config":` + string(config) + `}`
		}
	}
	return resp, nil
}

func (r *runtimeService) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: r.s.listPods(req.GetFilter())}, nil
}

func (s *Server) listPods(f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	var out []*runtimeapi.PodSandbox
	for _, p := range s.sortedPods() {
		fits := matchID(p.id, f.GetId()) && (f.GetState() == nil || p.state() == f.GetState().GetState()) &&
			hasLabels(p.config.GetLabels(), f.GetLabelSelector())
		if fits || s.o.IgnoreFilters {
			out = append(out, p.item())
		}
	}
	return out
}

func matchID(id, want string) bool {
	return len(want) <= len(id) && id[:len(want)] == want
}

func (r *runtimeService) UpdatePodSandboxResources(_ context.Context, req *runtimeapi.UpdatePodSandboxResourcesRequest) (*runtimeapi.UpdatePodSandboxResourcesResponse, error) {
	_, err := r.s.podByID(req.GetPodSandboxId())
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, err
}

// event notifies all watchers. A slow watcher loses it.
func (s *Server) event(c *container, kind runtimeapi.ContainerEventType) {
	e := &runtimeapi.ContainerEventResponse{
		ContainerId: c.id, ContainerEventType: kind, CreatedAt: s.now().UnixNano(), PodSandboxStatus: c.pod.status(),
	}
	for _, other := range s.sortedContainers() {
		if other.pod == c.pod {
			e.ContainersStatuses = append(e.ContainersStatuses, other.status())
		}
	}
	for ch := range s.watchers {
		select {
		case ch <- e:
		default:
		}
	}
}

func (r *runtimeService) GetContainerEvents(_ *runtimeapi.GetEventsRequest, out grpc.ServerStreamingServer[runtimeapi.ContainerEventResponse]) error {
	ch := make(chan *runtimeapi.ContainerEventResponse, 100)
	r.s.mu.Lock()
	r.s.watchers[ch] = struct{}{}
	r.s.mu.Unlock()
	defer func() {
		r.s.mu.Lock()
		delete(r.s.watchers, ch)
		r.s.mu.Unlock()
	}()
	for {
		select {
		case e := <-ch:
			if err := out.Send(e); err != nil {
				return err
			}
		case <-out.Context().Done():
			return nil
		case <-r.s.stop:
			return nil
		}
	}
}

// Watchers returns the number of event subscribers, so that tests can wait for a client to subscribe.
func (s *Server) Watchers() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.watchers)
}

// stats returns stats of a running container: half a core since the start, and a memory value that identifies the
// container.
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
	c, err := r.s.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatsResponse{Stats: r.s.stats(c)}, nil
}

func (r *runtimeService) ListContainerStats(_ context.Context, req *runtimeapi.ListContainerStatsRequest) (*runtimeapi.ListContainerStatsResponse, error) {
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
	p, err := r.s.podByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.PodSandboxStatsResponse{Stats: r.s.podStats(p)}, nil
}

func (r *runtimeService) ListPodSandboxStats(_ context.Context, req *runtimeapi.ListPodSandboxStatsRequest) (*runtimeapi.ListPodSandboxStatsResponse, error) {
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
	var out []*runtimeapi.PodSandboxMetrics
	for _, p := range r.s.sortedPods() {
		out = append(out, &runtimeapi.PodSandboxMetrics{PodSandboxId: p.id, Metrics: []*runtimeapi.Metric{{
			Name: "container_processes", Timestamp: r.s.now().UnixNano(), MetricType: runtimeapi.MetricType_GAUGE,
			LabelValues: []string{p.id, p.config.GetMetadata().GetName()}, Value: &runtimeapi.UInt64Value{Value: 2},
		}}})
	}
	return &runtimeapi.ListPodSandboxMetricsResponse{PodMetrics: out}, nil
}
