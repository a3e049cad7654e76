// Package container is the service of the shim that answers for a pod's
// containers: create, start, stop, remove, list, status and update.
//
// CreateContainer has three parts. What can be checked without asking anybody
// is checked first (validate). Then the facts are gathered: the sandbox, the
// image, the engine (facts.go). From request and facts a pure function makes
// the engine's configuration (plan*.go), and only then is anything created.
// What Docker cannot honour is refused with a sentence, never dropped.
package container

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/internal/keylock"
)

// Engine is what the service needs of the Docker client.
type Engine interface {
	ContainerCreate(ctx context.Context, config *container.Config, hostConfig *container.HostConfig, networking *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerStart(ctx context.Context, id string, o container.StartOptions) error
	ContainerStop(ctx context.Context, id string, o container.StopOptions) error
	ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerUpdate(ctx context.Context, id string, c container.UpdateConfig) (container.UpdateResponse, error)
	CopyFromContainer(ctx context.Context, id, path string) (io.ReadCloser, container.PathStat, error)
	ContainerStatPath(ctx context.Context, id, path string) (container.PathStat, error)
	ImageInspect(ctx context.Context, id string, o ...docker.ImageInspectOption) (image.InspectResponse, error)
	Info(ctx context.Context) (system.Info, error)
	ClientVersion() string
}

// Options are the parts that a Service works with.
type Options struct {
	Engine Engine
	Logs   Logs // nil: links to the engine's files
	OOM    *host.OOMScore
	// Capabilities, where it is set, names those that the engine can give where
	// it cannot give all.
	Capabilities func() []string
	Remember     bool // what labels say from one list to the next
	Log          *slog.Logger
	Now          func() time.Time
}

// Service answers the container RPCs.
type Service struct {
	engine Engine
	logs   Logs
	// writesLogs: a container is reported as ended later than the engine says.
	writesLogs bool
	oom        *host.OOMScore
	given      func() []string // capabilities, where the engine has not all
	log        *slog.Logger
	now        func() time.Time
	users      userFiles
	info       infoCache
	creating   keylock.Lock // by container name
	pending    pending
	remember   bool
	decoded    decodedLabels
}

// New builds the service.
func New(o Options) *Service {
	s := &Service{engine: o.Engine, logs: o.Logs, writesLogs: o.Logs != nil, remember: o.Remember, users: userFiles{engine: o.Engine}}
	if s.logs == nil {
		s.logs = links{}
	}
	if s.now = o.Now; s.now == nil {
		s.now = time.Now
	}
	s.log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s.oom = cmp.Or(o.OOM, &host.OOMScore{Log: s.log})
	s.info = infoCache{engine: o.Engine, now: s.now}
	s.given = sync.OnceValue(func() []string {
		if o.Capabilities == nil {
			return nil
		}
		names := o.Capabilities()
		if names != nil {
			s.log.Warn("the host allows the engine not all capabilities, containers that ask for all get the others", "capabilities", names)
		}
		return names
	})
	return s
}
