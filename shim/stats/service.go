// Package stats implements ContainerStats, PodSandboxStats, their lists, and the metrics RPCs with cAdvisor's names.
//
// If the engine is on this host, the values come from cgroup files, version 1 or 2, and from /proc, in well under a
// millisecond per container. Otherwise ListPodSandboxMetrics fails, and the other RPCs read the engine's own statistics
// in parallel; on engines before 23 they take one to two seconds per container. Only the sizes of writable layers, which
// need a disk walk, are collected in the background.
package stats

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/system"
	"golang.org/x/sync/errgroup"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

type Engine interface {
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerInspectWithRaw(ctx context.Context, id string, size bool) (container.InspectResponse, []byte, error)
	ContainerStatsOneShot(ctx context.Context, id string) (container.StatsResponseReader, error)
	Info(ctx context.Context) (system.Info, error)
}

type Service struct {
	engine  Engine
	log     *slog.Logger
	rates   rates
	sizes   *sizes
	timeout time.Duration // how long a list waits for one container

	mu        sync.Mutex        // guards inspected
	inspected map[string]target // containers that ran on this host when they were last listed, by id
}

func New(engine Engine, log *slog.Logger) *Service {
	return &Service{engine: engine, log: log, sizes: newSizes(), timeout: 10 * time.Second}
}

func (s *Service) Close() error {
	s.sizes.close()
	return nil
}

type target struct {
	c       container.InspectResponse
	member  state.Container // set for a container of a pod
	sandbox state.Sandbox   // set for a sandbox
	dirs    host.CgroupDirs // nil if the container does not run or its processes are not visible on this host
}

func (t target) isSandbox() bool { return t.sandbox.Metadata != nil }

// running returns false for the zero target, which stands for a container that could not be inspected.
func (t target) running() bool {
	return t.c.ContainerJSONBase != nil && t.c.State != nil && t.c.State.Running && t.c.State.Pid > 0
}

func (s *Service) inspect(ctx context.Context, id string) (target, error) {
	c, err := state.Inspect(ctx, s.engine, "container", id)
	if err != nil {
		return target{}, err
	}
	t := target{c: c}
	if t.running() {
		t.dirs, _ = host.Cgroups(c.State.Pid, c.ID)
	}
	var isMember, isSandbox bool
	t.member, isMember = state.DecodeContainer(c.Name, c.Config.Labels)
	t.sandbox, isSandbox = state.DecodeSandbox(c.Name, c.Config.Labels)
	if !isMember && !isSandbox {
		return target{}, fmt.Errorf("container %s belongs to no pod: %w", id, errdefs.ErrNotFound)
	}
	return t, nil
}

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
		t, err := s.remembered(ctx, summaries[i].ID)
		found[i] = t
		return s.skippable(summaries[i].ID, err)
	})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(found, func(t target) bool { return !t.running() }), nil
}

// inspectedKept is the maximum number of cached inspections.
const inspectedKept = 4096

// remembered returns the cached inspection of a container if its process is still in the container's cgroup. An
// inspection takes half of the time of a list. Stats from cgroup files use no values that change while a container runs;
// metrics do, see forget.
func (s *Service) remembered(ctx context.Context, id string) (target, error) {
	s.mu.Lock()
	t, ok := s.inspected[id]
	s.mu.Unlock()
	if ok {
		var err error
		if t.dirs, err = host.Cgroups(t.c.State.Pid, id); err == nil {
			return t, nil
		}
	}
	t, err := s.inspect(ctx, id)
	s.mu.Lock()
	defer s.mu.Unlock()
	if delete(s.inspected, id); err == nil && t.dirs != nil {
		if s.inspected == nil || len(s.inspected) >= inspectedKept {
			s.inspected = map[string]target{}
		}
		s.inspected[id] = t
	}
	return t, err
}

// forget makes the next list inspect all containers, because the metrics contain limits, which can be updated.
func (s *Service) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.inspected)
}

func labelFilter(kind string, selector map[string]string) []string {
	labels := []string{state.LabelType + "=" + kind}
	for k, v := range selector {
		labels = append(labels, state.EncodeLabelKey(k)+"="+v)
	}
	return labels
}

// skippable returns nil if the container is gone or the engine fails for it.
func (s *Service) skippable(id string, err error) error {
	if errdefs.IsNotFound(err) {
		return nil
	}
	if errdefs.IsInternal(err) {
		s.log.Warn("a container cannot be measured", "id", id, "err", err)
		return nil
	}
	return err
}

func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error { return do(ctx, i) })
	}
	return g.Wait()
}
