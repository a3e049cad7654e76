package stubcri

import (
	"context"
	"fmt"
	"maps"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
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
	s.mu.Lock()
	defer s.mu.Unlock()
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

// withPodLabels is a sandbox as CRI-O keeps it (populateSandboxLabels).
func withPodLabels(config *runtimeapi.PodSandboxConfig) *runtimeapi.PodSandboxConfig {
	m := config.GetMetadata()
	labels := map[string]string{
		"io.kubernetes.pod.name": m.GetName(), "io.kubernetes.pod.namespace": m.GetNamespace(), "io.kubernetes.pod.uid": m.GetUid(),
	}
	maps.Copy(labels, config.GetLabels())
	labels["io.kubernetes.container.name"] = "POD"
	config = proto.CloneOf(config)
	config.Labels = labels
	return config
}

func (r *runtimeService) StopPodSandbox(_ context.Context, req *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
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
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
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
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	p, err := r.s.podByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.PodSandboxStatusResponse{Status: p.status()}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": `{"pid":4242,"runtimeSpec":{"ociVersion":"1.1.0"}}`}
	}
	return resp, nil
}

func (r *runtimeService) ListPodSandbox(_ context.Context, req *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
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
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	_, err := r.s.podByID(req.GetPodSandboxId())
	return &runtimeapi.UpdatePodSandboxResourcesResponse{}, err
}
