package enginetest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/crishim/crishim/shim/docker"
)

// Logs gives what a container without a terminal has written so far.
func Logs(ctx context.Context, c *docker.Client, id string) (string, error) {
	r, err := c.ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true})
	if err != nil {
		return "", fmt.Errorf("logs of %s: %w", id, err)
	}
	defer r.Close()
	var b bytes.Buffer
	if _, err := stdcopy.StdCopy(&b, &b, r); err != nil {
		return "", fmt.Errorf("logs of %s: %w", id, err)
	}
	return b.String(), nil
}
