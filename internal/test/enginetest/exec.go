package enginetest

import (
	"bytes"
	"context"
	"fmt"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/pkg/stdcopy"

	"github.com/crishim/crishim/shim/docker"
)

// Exec runs a command inside a container, past the shim, and gives its output.
func Exec(ctx context.Context, c *docker.Client, id string, command ...string) (string, error) {
	e, err := c.ContainerExecCreate(ctx, id, container.ExecOptions{AttachStdout: true, AttachStderr: true, Cmd: command})
	if err != nil {
		return "", fmt.Errorf("exec in %s: %w", id, err)
	}
	conn, err := c.ContainerExecAttach(ctx, e.ID, container.ExecAttachOptions{})
	if err != nil {
		return "", fmt.Errorf("exec in %s: %w", id, err)
	}
	defer conn.Close()
	var b bytes.Buffer
	if _, err := stdcopy.StdCopy(&b, &b, conn.Reader); err != nil {
		return "", fmt.Errorf("exec in %s: %w", id, err)
	}
	return b.String(), nil
}
