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
	of := &runtimeapi.ContainerStatusRequest{ContainerId: containerID}
	resp, err := m.runtime.ContainerStatus(ctx, of)
	if err != nil {
		return err
	}
	path := resp.GetStatus().GetLogPath()
	if path == "" {
		return fmt.Errorf("%s: %w", containerID, ErrNoLog)
	}
	o.Ended = func(ctx context.Context) (bool, error) {
		resp, err := m.runtime.ContainerStatus(ctx, of)
		return isNotFound(err) || resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_EXITED, ignoreNotFound(err)
	}
	return logfile.Read(ctx, path, o, func(e logfile.Entry) error {
		to := stdout
		if e.Stream == logfile.Stderr {
			to = stderr
		}
		_, err := to.Write(e.Text)
		return err
	})
}
