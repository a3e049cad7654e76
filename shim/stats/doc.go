// Package stats is the service of the shim that measures: ContainerStats,
// PodSandboxStats, their lists, and the metrics under cAdvisor's names.
//
// Where the engine is on this host the numbers come from the files of cgroups, version
// 1 or 2, and of /proc, well under a millisecond per container. The engine's own
// statistics, which take a second or two each on engines before 23, are asked
// in parallel and only where there are no files to read. Nothing is collected
// in the background but the size of writable layers, which takes a disk walk.
package stats

import (
	"context"
	"log/slog"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
)

// Engine is what the service needs of the Docker client.
type Engine interface {
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerInspectWithRaw(ctx context.Context, id string, size bool) (container.InspectResponse, []byte, error)
	ContainerStatsOneShot(ctx context.Context, id string) (container.StatsResponseReader, error)
	Info(ctx context.Context) (system.Info, error)
}

// Options are the parts that a Service works with.
type Options struct {
	Engine Engine
	Log    *slog.Logger
	Now    func() time.Time
}

// Service answers the RPCs about usage.
type Service struct {
	engine  Engine
	log     *slog.Logger
	now     func() time.Time
	rates   rates
	sizes   *sizes
	timeout time.Duration // how long a list waits for one container
}

// timeout is more than the two seconds that old engines take.
const timeout = 10 * time.Second

// New builds the service. Close ends the disk walks that its calls begin.
func New(o Options) *Service {
	s := &Service{engine: o.Engine, log: o.Log, now: o.Now, sizes: newSizes(), timeout: timeout}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if s.now == nil {
		s.now = time.Now
	}
	return s
}

// Close ends what runs in the background and waits for it.
func (s *Service) Close() error {
	s.sizes.close()
	return nil
}
