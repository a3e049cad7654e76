package stream

import (
	"context"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
)

// Engine is what this area asks of the Docker client.
type Engine interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	execEngine
	attachEngine
}

type execEngine interface {
	ContainerExecCreate(ctx context.Context, id string, o container.ExecOptions) (container.ExecCreateResponse, error)
	ContainerExecAttach(ctx context.Context, execID string, o container.ExecAttachOptions) (types.HijackedResponse, error)
	ContainerExecResize(ctx context.Context, execID string, o container.ResizeOptions) error
	ExecInspector
}

// ExecInspector is the one engine call that [EndRecorded] needs.
type ExecInspector interface {
	ContainerExecInspect(ctx context.Context, execID string) (container.ExecInspect, error)
}

type attachEngine interface {
	ContainerAttach(ctx context.Context, id string, o container.AttachOptions) (types.HijackedResponse, error)
	ContainerResize(ctx context.Context, id string, o container.ResizeOptions) error
}
