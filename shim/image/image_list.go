package image

import (
	"context"
	"fmt"

	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

// ListImages lists the engine's images. The engine's own filter does not find
// images by id or digest, so the filter is applied here.
func (s *Service) ListImages(ctx context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	images, err := s.list(ctx, r.GetFilter())
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ListImagesResponse{Images: images}, nil
}

func (s *Service) list(ctx context.Context, filter *runtimeapi.ImageFilter) ([]*runtimeapi.Image, error) {
	summaries, err := s.engine.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	wanted := filter.GetImage().GetImage()
	images := make([]*runtimeapi.Image, 0, len(summaries))
	for _, summary := range summaries {
		if wanted != "" && !matches(summary, wanted) {
			continue
		}
		i := convert.Image(summary)
		i.Pinned = s.pinned(i)
		images = append(images, i)
	}
	return images, nil
}

// pinned: one of the image's names is that of the pause image, whatever form
// the configured reference has.
func (s *Service) pinned(i *runtimeapi.Image) bool {
	return s.pause != "" && matches(image.Summary{ID: i.GetId(), RepoTags: i.GetRepoTags(), RepoDigests: i.GetRepoDigests()}, s.pause)
}
