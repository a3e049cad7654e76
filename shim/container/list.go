package container

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"golang.org/x/sync/errgroup"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/state"
)

func (s *Service) ListContainers(ctx context.Context, r *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	f := r.GetFilter()
	summaries, err := s.Engine.ContainerList(ctx, listOptions(f, s.writesLogs))
	if err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	found := make([]*runtimeapi.Container, 0, len(summaries))
	for _, summary := range summaries {
		decoded, ok := state.DecodeContainer(state.ListedName(summary), summary.Labels)
		if !ok {
			continue
		}
		c := fromSummary(summary, decoded)
		// The engine cannot filter by all fields, and matches some differently.
		if !strings.HasPrefix(c.GetId(), f.GetId()) || !strings.HasPrefix(c.GetPodSandboxId(), f.GetPodSandboxId()) ||
			!state.MatchLabels(c.GetLabels(), f.GetLabelSelector()) {
			continue
		}
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED && s.Logs.Unfinished(ctx, c.GetId()) {
			c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		}
		found = append(found, c)
	}
	if err := s.resolveCreated(ctx, found); err != nil {
		return nil, fmt.Errorf("list containers: %w", err)
	}
	found = slices.DeleteFunc(found, func(c *runtimeapi.Container) bool {
		return c == nil || f.GetState() != nil && f.GetState().GetState() != c.GetState()
	})
	slices.SortStableFunc(found, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()) })
	return &runtimeapi.ListContainersResponse{Containers: found}, nil
}

// listOptions translates a filter as far as the engine supports it. A container whose log is incomplete counts as
// running here, but has exited for the engine.
func listOptions(f *runtimeapi.ContainerFilter, writesLogs bool) container.ListOptions {
	args := filters.NewArgs(filters.Arg("label", state.LabelType+"="+state.TypeContainer))
	if f.GetId() != "" {
		args.Add("id", f.GetId())
	}
	if id := f.GetPodSandboxId(); len(id) == 64 {
		args.Add("label", state.LabelSandboxID+"="+id)
	}
	for k, v := range f.GetLabelSelector() {
		args.Add("label", state.EncodeLabelKey(k)+"="+v)
	}
	// Without All the engine first discards all containers that are not running, and then applies the filters.
	running := f.GetState() != nil && f.GetState().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	if running && !writesLogs {
		return container.ListOptions{Filters: args}
	}
	if running {
		args.Add("status", container.StateExited)
	}
	if f.GetState() != nil {
		for _, word := range convert.EngineStates(f.GetState().GetState()) {
			args.Add("status", word)
		}
	}
	return container.ListOptions{All: true, Filters: args}
}

func fromSummary(c container.Summary, decoded state.Container) *runtimeapi.Container {
	return &runtimeapi.Container{
		Id:           c.ID,
		PodSandboxId: decoded.SandboxID,
		Metadata:     decoded.Metadata,
		Image:        &runtimeapi.ImageSpec{Image: cmp.Or(decoded.Image, c.Image), UserSpecifiedImage: decoded.Image}, // other shims do not record the image
		ImageRef:     c.ImageID,
		ImageId:      c.ImageID,
		State:        convert.ContainerState(c.State),
		CreatedAt:    createdAt(decoded.Created, c.Created*int64(time.Second)),
		Labels:       decoded.Labels,
		Annotations:  notePaused(decoded.Annotations, c.State == container.StatePaused),
	}
}

// notePaused sets an annotation for a paused container, because CRI has no such state. An annotation from the request
// is ignored.
func notePaused(annotations map[string]string, paused bool) map[string]string {
	delete(annotations, kube.AnnotationPaused)
	if paused {
		annotations[kube.AnnotationPaused] = "true"
	}
	return annotations
}

// createdAt prefers the shim's own time unless the clocks differ, because the engine's lists have a resolution of
// seconds.
func createdAt(own time.Time, engine int64) int64 {
	const sameClock = 5 * time.Second
	if off := time.Duration(own.UnixNano() - engine); own.IsZero() || off.Abs() > sameClock {
		return engine
	}
	return own.UnixNano()
}

// resolveCreated inspects created containers, because the engine's lists also show a container as created if its start
// has failed.
func (s *Service) resolveCreated(ctx context.Context, list []*runtimeapi.Container) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, c := range list {
		if c.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED {
			continue
		}
		g.Go(func() error {
			details, err := s.Engine.ContainerInspect(ctx, c.GetId())
			switch {
			case errdefs.IsNotFound(err):
				list[i] = nil
				return nil
			case errdefs.IsInternal(err):
				// The engine fails for this container only; the others are listed.
				s.Log.Warn("a container's state cannot be read", "id", c.GetId(), "err", err)
				c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
				return nil
			case err != nil:
				return err
			}
			run, err := convert.Run(details.Created, details.State)
			if err != nil {
				return fmt.Errorf("container %s: %w", c.GetId(), err)
			}
			c.State = run.State
			return nil
		})
	}
	return g.Wait()
}
