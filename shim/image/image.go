// Package image answers the CRI image service's RPCs: the engine's image store
// seen the CRI's way.
//
// One id names an image everywhere in the shim: the engine's own. It is
// Image.id, PullImageResponse.image_ref, Container.image_id and
// ContainerStatus.image_id. References may come in any form the engine knows:
// id, short id, tag, digest, or tag and digest together.
package image

import (
	"context"
	"io"
	"log/slog"
	"time"

	"github.com/distribution/reference"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"

	"github.com/crishim/crishim/shim/docker"
)

// Engine is what the image service needs of the Docker client.
type Engine interface {
	lister
	remover
	puller
	ImageHistory(ctx context.Context, imageID string, o ...docker.ImageHistoryOption) ([]image.HistoryResponseItem, error)
	DiskUsage(ctx context.Context, o types.DiskUsageOptions) (types.DiskUsage, error)
}

type inspector interface {
	ImageInspect(ctx context.Context, imageID string, o ...docker.ImageInspectOption) (image.InspectResponse, error)
}

type lister interface {
	inspector
	ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error)
}

type remover interface {
	inspector
	ImageRemove(ctx context.Context, imageID string, o image.RemoveOptions) ([]image.DeleteResponse, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
}

type puller interface {
	inspector
	ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error)
	Info(ctx context.Context) (system.Info, error)
}

// Options configure the image service.
type Options struct {
	Engine Engine
	Log    *slog.Logger
	// PullProgressDeadline ends a pull that has said nothing for this long.
	PullProgressDeadline time.Duration
	// PauseImage is listed as pinned, so that nobody's garbage collection takes it.
	PauseImage string
}

// DefaultPullProgressDeadline is the one of dockershim and cri-dockerd.
const DefaultPullProgressDeadline = time.Minute

// Service answers the image RPCs.
type Service struct {
	engine   Engine
	log      *slog.Logger
	deadline time.Duration
	pause    string
}

// New makes the service; it calls nothing.
func New(o Options) *Service {
	s := &Service{engine: o.Engine, log: o.Log, deadline: o.PullProgressDeadline, pause: o.PauseImage}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if named, err := reference.ParseNormalizedNamed(s.pause); err == nil {
		s.pause = reference.TagNameOnly(named).String()
	}
	if s.deadline <= 0 {
		s.deadline = DefaultPullProgressDeadline
	}
	return s
}
