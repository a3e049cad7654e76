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
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/system"
	"golang.org/x/sync/errgroup"

	"github.com/crishim/crishim/shim/state"
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

// parallel bounds the questions to the engine at one time.
const parallel = 8

// target is a container to measure, a pod's or the sandbox itself.
type target struct {
	c       container.InspectResponse
	member  state.Container // of a pod's container
	sandbox state.Sandbox   // of a sandbox
}

func (t target) isSandbox() bool { return t.sandbox.Metadata != nil }

// running is false for the zero target, a container that could not be inspected.
func (t target) running() bool {
	return t.c.ContainerJSONBase != nil && t.c.State != nil && t.c.State.Running && t.c.State.Pid > 0
}

// inspect finds one target.
func (s *Service) inspect(ctx context.Context, id string) (target, error) {
	c, err := state.Inspect(ctx, s.engine, "container", id)
	if err != nil {
		return target{}, err
	}
	t := target{c: c}
	var isMember, isSandbox bool
	t.member, isMember = state.DecodeContainer(c.Name, c.Config.Labels)
	t.sandbox, isSandbox = state.DecodeSandbox(c.Name, c.Config.Labels)
	if !isMember && !isSandbox {
		return target{}, fmt.Errorf("container %s belongs to no pod: %w", id, errdefs.ErrNotFound)
	}
	return t, nil
}

// targets lists what runs, is wanted (nil: all is) and carries the labels. Those
// that end meanwhile are left out.
func (s *Service) targets(ctx context.Context, wanted func(container.Summary) bool, labels ...string) ([]target, error) {
	args := filters.NewArgs()
	for _, l := range labels {
		args.Add("label", l)
	}
	summaries, err := s.engine.ContainerList(ctx, container.ListOptions{Filters: args})
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	if wanted != nil {
		summaries = slices.DeleteFunc(slices.Clone(summaries), func(c container.Summary) bool { return !wanted(c) })
	}
	found := make([]target, len(summaries))
	err = each(ctx, len(summaries), func(ctx context.Context, i int) error {
		t, err := s.inspect(ctx, summaries[i].ID)
		found[i] = t
		return s.forgive(summaries[i].ID, err)
	})
	if err != nil {
		return nil, err
	}
	var out []target
	for _, t := range found {
		if t.running() {
			out = append(out, t)
		}
	}
	return out, nil
}

// forgive leaves a container out that is gone, or that the engine is in trouble
// with: one container must not keep the others from being measured.
func (s *Service) forgive(id string, err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	if errdefs.IsInternal(err) {
		s.log.Warn("a container cannot be measured", "id", id, "err", err)
		return nil
	}
	return err
}

// each works on the numbers below n, some at the same time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}
