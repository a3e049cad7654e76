package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/logfile"
)

// ErrNoLog is a container without a log file on this host.
var ErrNoLog = errors.New("the container has no log file")

// GetContainerLogs copies a container's log, each stream to its writer. With o.Follow it goes on
// until the container has ended; o.Ended is its own.
func (m *Manager) GetContainerLogs(ctx context.Context, containerID string, o logfile.Options, stdout, stderr io.Writer) error {
	status, err := m.service.containerStatus(ctx, containerID)
	if err != nil {
		return err
	}
	if status.GetLogPath() == "" {
		return fmt.Errorf("%s: %w", containerID, ErrNoLog)
	}
	o.Ended = func(ctx context.Context) (bool, error) {
		status, err := m.service.containerStatus(ctx, containerID)
		return isNotFound(err) || status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, ignoreNotFound(err)
	}
	return logfile.Read(ctx, status.GetLogPath(), o, func(e logfile.Entry) error {
		to := stdout
		if e.Stream == logfile.Stderr {
			to = stderr
		}
		_, err := to.Write(e.Text)
		return err
	})
}
