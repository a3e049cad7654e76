package stubcri

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func (c *container) logPath() string {
	if c.config.GetLogPath() == "" || c.pod.config.GetLogDirectory() == "" {
		return ""
	}
	return filepath.Join(c.pod.config.GetLogDirectory(), c.config.GetLogPath())
}

// Log appends a full line to the container's log file, in the CRI format.
func (s *Server) Log(id, stream, line string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	c, err := s.containerByID(id)
	if err != nil {
		s.t.Fatal(err)
	}
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
	if cerr := f.Close(); err != nil || cerr != nil {
		s.t.Fatal(err, cerr)
	}
}

func (r *runtimeService) ReopenContainerLog(_ context.Context, req *runtimeapi.ReopenContainerLogRequest) (*runtimeapi.ReopenContainerLogResponse, error) {
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
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
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	_, err := r.s.containerByID(req.GetContainerId())
	if err == nil {
		err = os.WriteFile(req.GetLocation(), []byte("checkpoint\n"), 0o600)
	}
	return &runtimeapi.CheckpointContainerResponse{}, err
}
