// Package logs writes container logs in the CRI format to the files that a
// kubelet reads, rotates and removes.
//
// The source is the engine's log API, which serves every log driver that can be
// read. A [Service] follows each running container that has a log path; it
// begins when the container is started, or when the shim is, and ends when the
// container does. Every record becomes one line:
//
//	2026-01-02T15:04:05.000000001Z stdout F text
//
// with P instead of F where the engine has cut a long line. What a file holds
// already is recognised by the records themselves (position.go), so nothing is
// lost and nothing is written twice when the shim or the engine restarts.
//
// In a shim that lives for one command nobody stays to write; there the
// container area links the path to the engine's own file.
package logs

import (
	"context"
	"io"

	"github.com/docker/docker/api/types/container"
)

// Engine is what this package asks of the Docker client.
type Engine interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerLogs(ctx context.Context, id string, o container.LogsOptions) (io.ReadCloser, error)
}
