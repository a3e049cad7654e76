package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io"

	criapi "k8s.io/cri-api/pkg/apis"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	crilogs "k8s.io/cri-client/pkg/logs"

	"github.com/crishim/crishim/internal/bounded"
)

// LogOptions say which lines of a log are wanted; they are the CRI log reader's.
type LogOptions = crilogs.LogOptions

// ErrNoLog is a container without a log file on this host.
var ErrNoLog = errors.New("the container has no log file")

// GetContainerLogs copies a container's log, in the CRI's or in Docker's form.
func (m *Manager) GetContainerLogs(ctx context.Context, containerID string, o LogOptions, stdout, stderr io.Writer) error {
	status, err := m.service.containerStatus(ctx, containerID)
	if err != nil {
		return err
	}
	if status.GetLogPath() == "" {
		return fmt.Errorf("%s: %w", containerID, ErrNoLog)
	}
	f, err := bounded.OpenLog(status.GetLogPath()) // and not what the container may have put in its place
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return crilogs.ReadLogs(ctx, status.GetLogPath(), containerID, &o, logRuntime{service: m.service}, stdout, stderr)
}

// logRuntime is as much of a runtime as the log reader asks: whether the container runs.
type logRuntime struct {
	criapi.RuntimeService
	service *service
}

func (l logRuntime) ContainerStatus(ctx context.Context, id string, _ bool) (*runtimeapi.ContainerStatusResponse, error) {
	status, err := l.service.containerStatus(ctx, id)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ContainerStatusResponse{Status: status}, nil
}
