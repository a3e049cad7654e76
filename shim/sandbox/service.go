// Package sandbox is the service of the shim that answers for pod sandboxes:
// RunPodSandbox, StopPodSandbox, RemovePodSandbox, PodSandboxStatus and
// ListPodSandbox.
//
// A sandbox is one engine container with a pause process. Its record is the
// container's labels; pods of dockershim and cri-dockerd have the same and are
// handled alike.
package sandbox

import (
	"cmp"
	"context"
	"log/slog"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/internal/keylock"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/pause"
)

// Engine is what the service needs of the Docker client.
type Engine interface {
	pause.Engine
	ContainerCreate(ctx context.Context, config *container.Config, hostConfig *container.HostConfig, networking *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerStart(ctx context.Context, id string, options container.StartOptions) error
	ContainerStop(ctx context.Context, id string, options container.StopOptions) error
	ContainerRemove(ctx context.Context, id string, options container.RemoveOptions) error
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
}

// Containers ends the containers of a pod. The container service implements it.
type Containers interface {
	// Kill ends a container at once; one that has ended or is gone is fine.
	Kill(ctx context.Context, id string) error
	// Remove removes a container and what belongs to it, running or not; one
	// that is gone is fine.
	Remove(ctx context.Context, id string) error
}

// Options are the parts that a Service works with.
type Options struct {
	Engine     Engine
	Containers Containers // nil: the engine alone
	Networks   podnetwork.Plugins
	PauseImage string // "": the built-in one
	OOM        *host.OOMScore
	Log        *slog.Logger
	Now        func() time.Time
}

// Service answers the sandbox RPCs.
type Service struct {
	engine     Engine
	containers Containers
	networks   podnetwork.Plugins
	pauseImage string
	oom        *host.OOMScore
	log        *slog.Logger
	now        func() time.Time
	creating   keylock.Lock
	pending    pending
}

// New builds the service.
func New(o Options) *Service {
	s := &Service{engine: o.Engine, containers: o.Containers, networks: o.Networks, pauseImage: o.PauseImage, now: o.Now}
	if s.now == nil {
		s.now = time.Now
	}
	if s.containers == nil {
		s.containers = engineContainers{s.engine}
	}
	s.log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s.oom = cmp.Or(o.OOM, &host.OOMScore{Log: s.log})
	return s
}

// engineContainers ends containers with the engine alone. It serves where no
// container service keeps anything else than the engine's container.
type engineContainers struct{ engine Engine }

func (e engineContainers) Kill(ctx context.Context, id string) error {
	return lifecycle.Stop(ctx, e.engine, id, 0)
}

func (e engineContainers) Remove(ctx context.Context, id string) error {
	return lifecycle.Remove(ctx, e.engine, id)
}
