package stubcri

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type pod struct {
	id      string
	config  *runtimeapi.PodSandboxConfig
	handler string
	created int64
	ready   bool
	ip      string
}

type container struct {
	id                         string
	pod                        *pod
	config                     *runtimeapi.ContainerConfig
	state                      runtimeapi.ContainerState
	created, started, finished int64
	code                       int32
	reason                     string
	imageID                    string
	ended                      chan struct{} // closed when it exits
}

// newID returns realistic ids that are the same in each run.
func (s *Server) newID(kind string) string {
	s.seq++
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d", kind, s.seq))
	return hex.EncodeToString(sum[:])
}

func (s *Server) podByID(id string) (*pod, error) { return byID(s.pods, "pod sandbox", id) }

func (s *Server) containerByID(id string) (*container, error) {
	return byID(s.containers, "container", id)
}

func (s *Server) change(id string, do func(c *container)) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.containerByID(id)
	if err != nil {
		s.t.Fatal(err)
	}
	do(c)
}

// byID also accepts a unique prefix, as containerd and CRI-O do.
func byID[T any](all map[string]*T, kind, id string) (*T, error) {
	if x, ok := all[id]; ok {
		return x, nil
	}
	var found []*T
	for k, x := range all {
		if id != "" && strings.HasPrefix(k, id) {
			found = append(found, x)
		}
	}
	if len(found) == 1 {
		return found[0], nil
	}
	return nil, status.Errorf(codes.NotFound, "%s %q not found", kind, id)
}

// Lists are sorted newest first, so that they do not depend on map order.

func (s *Server) sortedPods() []*pod {
	return slices.SortedFunc(maps.Values(s.pods), func(a, b *pod) int {
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(a.id, b.id))
	})
}

func (s *Server) sortedContainers() []*container {
	return slices.SortedFunc(maps.Values(s.containers), func(a, b *container) int {
		return cmp.Or(cmp.Compare(b.created, a.created), cmp.Compare(a.id, b.id))
	})
}

func hasLabels(labels, want map[string]string) bool {
	for k, v := range want {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (p *pod) state() runtimeapi.PodSandboxState {
	if p.ready {
		return runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
}

func (p *pod) item() *runtimeapi.PodSandbox {
	return &runtimeapi.PodSandbox{
		Id: p.id, Metadata: p.config.GetMetadata(), State: p.state(), CreatedAt: p.created,
		Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(), RuntimeHandler: p.handler,
	}
}

func (p *pod) status() *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id: p.id, Metadata: p.config.GetMetadata(), State: p.state(), CreatedAt: p.created,
		Labels: p.config.GetLabels(), Annotations: p.config.GetAnnotations(), RuntimeHandler: p.handler,
		Linux: &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{
			Options: p.config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}
	if p.ready {
		st.Network = &runtimeapi.PodSandboxNetworkStatus{Ip: p.ip}
	}
	return st
}

func (c *container) item() *runtimeapi.Container {
	return &runtimeapi.Container{
		Id: c.id, PodSandboxId: c.pod.id, Metadata: c.config.GetMetadata(), Image: c.config.GetImage(), ImageRef: c.imageID,
		ImageId: c.imageID, State: c.state, CreatedAt: c.created, Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(),
	}
}

func (c *container) status() *runtimeapi.ContainerStatus {
	return &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: c.config.GetMetadata(), State: c.state, CreatedAt: c.created, StartedAt: c.started,
		FinishedAt: c.finished, ExitCode: c.code, Reason: c.reason, Image: c.config.GetImage(), ImageRef: c.imageID, ImageId: c.imageID,
		Labels: c.config.GetLabels(), Annotations: c.config.GetAnnotations(), Mounts: c.config.GetMounts(), LogPath: c.logPath(),
		Resources: &runtimeapi.ContainerResources{Linux: proto.CloneOf(c.config.GetLinux().GetResources())},
	}
}

// AddPod adds a ready pod and returns its id. The uid is derived from the name.
func (s *Server) AddPod(namespace, name string, change ...func(*runtimeapi.PodSandboxConfig)) string {
	s.t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: namespace + "-" + name + "-uid"},
	}
	for _, f := range change {
		f(config)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	resp, err := (&runtimeService{s: s}).RunPodSandbox(s.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.GetPodSandboxId()
}

// AddContainer adds a running container and returns its id. It adds the image busybox if needed.
func (s *Server) AddContainer(podID, name string, change ...func(*runtimeapi.ContainerConfig)) string {
	s.t.Helper()
	id := s.AddCreated(podID, name, change...)
	s.Begin(id)
	return id
}

func (s *Server) Begin(id string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := (&runtimeService{s: s}).StartContainer(s.t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		s.t.Fatal(err)
	}
}

// AddCreated is AddContainer without the start.
func (s *Server) AddCreated(podID, name string, change ...func(*runtimeapi.ContainerConfig)) string {
	s.t.Helper()
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: "busybox"},
	}
	for _, f := range change {
		f(config)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.findImage("busybox") == nil {
		s.addImage("busybox")
	}
	resp, err := (&runtimeService{s: s}).CreateContainer(s.t.Context(),
		&runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: config})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.GetContainerId()
}

func (s *Server) StopPod(id string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	p, err := s.podByID(id)
	if err != nil {
		s.t.Fatal(err)
	}
	s.stopPod(p)
}

// Left returns the number of pods and containers, for tests of clean-up.
func (s *Server) Left() (pods, containers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pods), len(s.containers)
}
