package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// RemoveImage removes an image and all its names. An image in use is refused before any name is removed.
func (s *Service) RemoveImage(ctx context.Context, r *runtimeapi.RemoveImageRequest) (*runtimeapi.RemoveImageResponse, error) {
	ref := r.GetImage().GetImage()
	i, found, err := s.inspect(ctx, ref)
	if err != nil {
		return nil, err
	}
	if !found {
		return &runtimeapi.RemoveImageResponse{}, nil
	}
	if err := s.checkUnused(ctx, i.ID, ref); err != nil {
		return nil, err
	}
	// With an id and force the engine removes all names and the image in one step.
	err = untilRemoved(ctx, func() (bool, error) {
		_, err := s.Engine.ImageRemove(ctx, i.ID, image.RemoveOptions{Force: true, PruneChildren: true})
		if err == nil {
			return true, nil
		}
		if _, still, inspectErr := s.inspect(ctx, i.ID); inspectErr == nil && !still {
			return true, nil
		}
		// "Not found" for an image that still exists means that another client has removed the names and is removing the
		// image. The call is then retried.
		return !errdefs.IsNotFound(err), fmt.Errorf("remove image %s: %w", ref, err)
	})
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RemoveImageResponse{}, nil
}

// checkUnused refuses an image that a container was created from or mounts. The mounts are read from the container's
// labels, because on engines before 28 such a mount is a volume, which does not name the image.
func (s *Service) checkUnused(ctx context.Context, id, ref string) error {
	containers, err := s.Engine.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return fmt.Errorf("list containers that use image %s: %w", ref, err)
	}
	for _, c := range containers {
		name, how := c.ID[:min(12, len(c.ID))], "uses it"
		if len(c.Names) > 0 {
			name += " (" + strings.TrimPrefix(c.Names[0], "/") + ")"
		}
		pods, _ := state.DecodeContainer(state.ListedName(c), c.Labels)
		if slices.ContainsFunc(pods.ImageMounts, func(m state.ImageMount) bool { return m.ID == id }) {
			how = "has it mounted"
		} else if c.ImageID != id {
			continue
		}
		return fmt.Errorf("remove image %s: container %s %s: %w", ref, name, how, errdefs.ErrFailedPrecondition)
	}
	return nil
}
