package stats

import (
	"context"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sync/errgroup"

	"github.com/crishim/crishim/shim/state"
)

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
