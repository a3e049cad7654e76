package image

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/imageref"
	"github.com/crishim/crishim/shim/convert"
)

// ListImages filters by itself, because the engine cannot filter by id or digest.
func (s *Service) ListImages(ctx context.Context, r *runtimeapi.ListImagesRequest) (*runtimeapi.ListImagesResponse, error) {
	summaries, err := s.list(ctx, image.ListOptions{})
	if err != nil {
		return nil, err
	}
	wanted := r.GetFilter().GetImage().GetImage()
	out := &runtimeapi.ListImagesResponse{Images: make([]*runtimeapi.Image, 0, len(summaries))}
	for _, summary := range summaries {
		if wanted != "" && !matches(summary, wanted) {
			continue
		}
		i := convert.Image(summary)
		i.Pinned = s.pinned(i)
		out.Images = append(out.Images, i)
	}
	return out, nil
}

// list retries while another client removes an image, because the containerd image store then fails the whole list.
func (s *Service) list(ctx context.Context, o image.ListOptions) (images []image.Summary, err error) {
	err = untilRemoved(ctx, func() (bool, error) {
		images, err = s.Engine.ImageList(ctx, o)
		return !errdefs.IsNotFound(err), err
	})
	if err != nil {
		return nil, fmt.Errorf("list images: %w", err)
	}
	return images, nil
}

func (s *Service) pinned(i *runtimeapi.Image) bool {
	return s.PauseImage != "" && matches(image.Summary{ID: i.GetId(), RepoTags: i.GetRepoTags(), RepoDigests: i.GetRepoDigests()}, s.PauseImage)
}

// matches accepts an id or its prefix, a name with or without tag or digest, and a pattern such as "*/pause".
func matches(s image.Summary, filter string) bool {
	hex := strings.TrimPrefix(s.ID, "sha256:")
	if short := strings.TrimPrefix(filter, "sha256:"); short != "" && strings.HasPrefix(hex, short) {
		return true
	}
	fits := func(name string) bool { return nameMatches(name, engineReference(filter)) }
	return slices.ContainsFunc(s.RepoTags, fits) || slices.ContainsFunc(s.RepoDigests, fits)
}

func nameMatches(name, wanted string) bool {
	if imageref.Matches(name, wanted) {
		return true
	}
	ref, err := reference.ParseNormalizedNamed(name)
	if err != nil {
		return false // <none>:<none>
	}
	for _, pattern := range []string{wanted, strings.TrimPrefix(wanted, "docker.io/")} {
		if ok, err := reference.FamiliarMatch(pattern, ref); err == nil && ok {
			return true
		}
	}
	return false
}
