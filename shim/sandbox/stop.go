package sandbox

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

// pauseGrace, in seconds, is for sandbox images that ignore SIGTERM.
const pauseGrace = 10

// StopPodSandbox succeeds for a sandbox that is gone. If the network cannot be torn down, it fails so that the caller
// retries.
func (s *Service) StopPodSandbox(ctx context.Context, r *runtimeapi.StopPodSandboxRequest) (*runtimeapi.StopPodSandboxResponse, error) {
	b, err := state.FindSandbox(ctx, s.Engine, r.GetPodSandboxId())
	if errdefs.IsNotFound(err) {
		return &runtimeapi.StopPodSandboxResponse{}, nil
	}
	if err != nil {
		return nil, err
	}
	// Each step runs even if another fails. The sandbox is stopped last, because the network plugin needs its network
	// namespace.
	if err := errors.Join(
		s.eachContainer(ctx, b.Detail.ID, false, s.Containers.Kill),
		s.tearDown(ctx, b),
		lifecycle.Stop(ctx, s.Engine, b.Detail.ID, pauseGrace),
	); err != nil {
		return nil, fmt.Errorf("stop pod sandbox %s: %w", b.Detail.ID, err)
	}
	return &runtimeapi.StopPodSandboxResponse{}, nil
}

func (s *Service) eachContainer(ctx context.Context, sandboxID string, all bool, f func(context.Context, string) error) error {
	list, err := s.Engine.ContainerList(ctx, container.ListOptions{All: all, Filters: filters.NewArgs(
		filters.Arg("label", state.LabelType+"="+state.TypeContainer),
		filters.Arg("label", state.LabelSandboxID+"="+sandboxID),
	)})
	if err != nil {
		return fmt.Errorf("list the containers of the pod: %w", err)
	}
	list = slices.DeleteFunc(slices.Clone(list), func(c container.Summary) bool {
		_, ok := state.DecodeContainer(state.ListedName(c), c.Labels)
		return !ok
	})
	errs := make([]error, len(list))
	var group errgroup.Group
	group.SetLimit(8)
	for i, c := range list {
		group.Go(func() error {
			errs[i] = f(ctx, c.ID)
			return nil
		})
	}
	return errors.Join(append(errs, group.Wait())...)
}

// RemovePodSandbox keeps the sandbox if a part of the pod could not be removed, because the sandbox's labels are the
// only record of the pod.
func (s *Service) RemovePodSandbox(ctx context.Context, r *runtimeapi.RemovePodSandboxRequest) (*runtimeapi.RemovePodSandboxResponse, error) {
	b, err := state.FindSandbox(ctx, s.Engine, r.GetPodSandboxId())
	switch {
	case errdefs.IsNotFound(err):
		err = s.eachContainer(ctx, r.GetPodSandboxId(), true, s.Containers.Remove)
	case err == nil:
		err = errors.Join(s.eachContainer(ctx, b.Detail.ID, true, s.Containers.Remove), s.tearDown(ctx, b))
		if err == nil {
			err = lifecycle.Remove(ctx, s.Engine, b.Detail.ID)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("remove pod sandbox %s: %w", r.GetPodSandboxId(), err)
	}
	return &runtimeapi.RemovePodSandboxResponse{}, nil
}
