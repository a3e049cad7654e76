package stubcri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (r *runtimeService) CreateContainer(_ context.Context, req *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	s := r.s
	p, err := s.podByID(req.GetPodSandboxId())
	if err != nil {
		return nil, err
	}
	if !p.ready {
		return nil, status.Errorf(codes.FailedPrecondition, "pod sandbox %q is not ready", p.id)
	}
	m := req.GetConfig().GetMetadata()
	if m.GetName() == "" {
		return nil, status.Error(codes.InvalidArgument, "the container's metadata needs a name")
	}
	for _, c := range s.containers {
		if c.pod == p && c.config.GetMetadata().GetName() == m.GetName() && c.config.GetMetadata().GetAttempt() == m.GetAttempt() {
			return nil, status.Errorf(codes.AlreadyExists, "container %q is reserved for %q", m.GetName(), c.id)
		}
	}
	image := s.findImage(req.GetConfig().GetImage().GetImage())
	if image == nil {
		return nil, status.Errorf(codes.NotFound, "image %q is not there", req.GetConfig().GetImage().GetImage())
	}
	c := &container{
		id: s.newID("container"), pod: p, config: proto.CloneOf(req.GetConfig()), created: s.now().UnixNano(),
		state: runtimeapi.ContainerState_CONTAINER_CREATED, imageID: image.GetId(), ended: make(chan struct{}),
	}
	if dir := req.GetSandboxConfig().GetLogDirectory(); dir != "" && p.config.GetLogDirectory() == "" {
		p.config.LogDirectory = dir
	}
	s.containers[c.id] = c
	s.event(c, runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT)
	return &runtimeapi.CreateContainerResponse{ContainerId: c.id}, nil
}

func (r *runtimeService) StartContainer(_ context.Context, req *runtimeapi.StartContainerRequest) (*runtimeapi.StartContainerResponse, error) {
	c, err := r.s.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.state != runtimeapi.ContainerState_CONTAINER_CREATED {
		return nil, status.Errorf(codes.FailedPrecondition, "container %q is in state %s", c.id, c.state)
	}
	c.state, c.started = runtimeapi.ContainerState_CONTAINER_RUNNING, r.s.now().UnixNano()
	r.s.event(c, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT)
	if after := r.s.afterStart[c.config.GetMetadata().GetName()]; after != nil {
		go after(c.id)
	}
	return &runtimeapi.StartContainerResponse{}, nil
}

func (r *runtimeService) StopContainer(_ context.Context, req *runtimeapi.StopContainerRequest) (*runtimeapi.StopContainerResponse, error) {
	if c, err := r.s.containerByID(req.GetContainerId()); err == nil {
		r.s.exit(c, 137)
	}
	return &runtimeapi.StopContainerResponse{}, nil
}

// exit ends a running container. It has no effect on others.
func (s *Server) exit(c *container, code int32) {
	if c.state != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return
	}
	c.state, c.finished, c.code, c.reason = runtimeapi.ContainerState_CONTAINER_EXITED, s.now().UnixNano(), code, "Error"
	if code == 0 {
		c.reason = "Completed"
	}
	close(c.ended)
	s.event(c, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT)
}

// AfterStart runs f in its own goroutine when a container of this name is started.
func (s *Server) AfterStart(name string, f func(id string)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.afterStart[name] = f
}

// ExitFor ends a running container with an exit code and a runtime's reason, such as OOMKilled.
func (s *Server) ExitFor(id string, code int32, reason string) {
	s.t.Helper()
	s.change(id, func(c *container) {
		s.exit(c, code)
		c.reason = reason
	})
}

// Exit ends a running container with an exit code, as if its process exited.
func (s *Server) Exit(id string, code int32) {
	s.t.Helper()
	s.change(id, func(c *container) { s.exit(c, code) })
}

func (r *runtimeService) RemoveContainer(_ context.Context, req *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	if c, err := r.s.containerByID(req.GetContainerId()); err == nil {
		r.s.exit(c, 137)
		delete(r.s.containers, c.id)
		r.s.event(c, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT)
	}
	return &runtimeapi.RemoveContainerResponse{}, nil
}

func (r *runtimeService) ListContainers(_ context.Context, req *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	return &runtimeapi.ListContainersResponse{Containers: r.s.listContainers(req.GetFilter())}, nil
}

func (s *Server) listContainers(f *runtimeapi.ContainerFilter) []*runtimeapi.Container {
	var out []*runtimeapi.Container
	for _, c := range s.sortedContainers() {
		fits := matchID(c.id, f.GetId()) && matchID(c.pod.id, f.GetPodSandboxId()) &&
			(f.GetState() == nil || c.state == f.GetState().GetState()) && hasLabels(c.config.GetLabels(), f.GetLabelSelector())
		if fits || s.o.IgnoreFilters {
			out = append(out, c.item())
		}
	}
	return out
}

func (r *runtimeService) ContainerStatus(_ context.Context, req *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	c, err := r.s.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	resp := &runtimeapi.ContainerStatusResponse{Status: c.status()}
	if req.GetVerbose() {
		resp.Info = map[string]string{"info": `{"pid":4343,"sandboxID":"` + c.pod.id + `","runtimeSpec":{"ociVersion":"1.1.0"}}`}
	}
	return resp, nil
}

func (r *runtimeService) UpdateContainerResources(_ context.Context, req *runtimeapi.UpdateContainerResourcesRequest) (*runtimeapi.UpdateContainerResourcesResponse, error) {
	c, err := r.s.containerByID(req.GetContainerId())
	if err != nil {
		return nil, err
	}
	if c.config.Linux == nil {
		c.config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if c.config.Linux.Resources == nil {
		c.config.Linux.Resources = &runtimeapi.LinuxContainerResources{}
	}
	proto.Merge(c.config.Linux.Resources, req.GetLinux())
	return &runtimeapi.UpdateContainerResourcesResponse{}, nil
}

func (c *container) logPath() string {
	if c.config.GetLogPath() == "" || c.pod.config.GetLogDirectory() == "" {
		return ""
	}
	return filepath.Join(c.pod.config.GetLogDirectory(), c.config.GetLogPath())
}

// Log appends a full line to the container's log file in CRI format.
func (s *Server) Log(id, stream, line string) {
	s.t.Helper()
	s.change(id, func(c *container) {
		path := c.logPath()
		if path == "" {
			s.t.Fatalf("container %s has no log path", id)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			s.t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			s.t.Fatal(err)
		}
		_, err = fmt.Fprintf(f, "%s %s F %s\n", s.now().UTC().Format(time.RFC3339Nano), stream, line)
		if err := errors.Join(err, f.Close()); err != nil {
			s.t.Fatal(err)
		}
	})
}

func (r *runtimeService) ReopenContainerLog(_ context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	c, err := r.s.containerByID(req.GetContainerId())
	if err == nil && c.logPath() != "" {
		var f *os.File
		if f, err = os.OpenFile(c.logPath(), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	return &runtimeapi.ReopenContainerLogResponse{}, err
}

func (r *runtimeService) CheckpointContainer(_ context.Context, req *runtimeapi.CheckpointContainerRequest) (*runtimeapi.CheckpointContainerResponse, error) {
	_, err := r.s.containerByID(req.GetContainerId())
	if err == nil {
		err = os.WriteFile(req.GetLocation(), []byte("checkpoint\n"), 0o600)
	}
	return &runtimeapi.CheckpointContainerResponse{}, err
}
