package stubcri

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// AddPod adds a ready pod and returns its id. The uid is made from the name.
func (s *Server) AddPod(namespace, name string, change ...func(*runtimeapi.PodSandboxConfig)) string {
	s.t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: namespace, Uid: namespace + "-" + name + "-uid"},
	}
	for _, f := range change {
		f(config)
	}
	resp, err := (&runtimeService{s: s}).RunPodSandbox(s.t.Context(), &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.GetPodSandboxId()
}

// AddContainer adds a running container with image busybox, which it brings,
// and returns its id.
func (s *Server) AddContainer(podID, name string, change ...func(*runtimeapi.ContainerConfig)) string {
	s.t.Helper()
	id := s.AddCreated(podID, name, change...)
	s.Begin(id)
	return id
}

// Begin starts a created container.
func (s *Server) Begin(id string) {
	s.t.Helper()
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
	if s.findImage("busybox") == nil {
		s.addImage("busybox")
	}
	s.mu.Unlock()
	resp, err := (&runtimeService{s: s}).CreateContainer(s.t.Context(),
		&runtimeapi.CreateContainerRequest{PodSandboxId: podID, Config: config})
	if err != nil {
		s.t.Fatal(err)
	}
	return resp.GetContainerId()
}

// StopPod stops a pod as StopPodSandbox does.
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

// Left is how many pods and containers there are, for tests that must clean up.
func (s *Server) Left() (pods, containers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.pods), len(s.containers)
}
