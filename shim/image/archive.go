package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/pause"
)

// Save returns images as the engine's archive. A name without a tag means the tag latest; the engine would save all
// tags. As with docker save, an image given by id has no name in the archive.
func (s *Service) Save(ctx context.Context, images []string) (io.ReadCloser, error) {
	if len(images) == 0 {
		return nil, fmt.Errorf("the request names no image: %w", errdefs.ErrInvalidArgument)
	}
	refs := make([]string, 0, len(images))
	for _, name := range images {
		i, found, err := s.inspect(ctx, name)
		if err != nil {
			return nil, err
		}
		if !found {
			return nil, fmt.Errorf("the engine has no image %s: %w", name, errdefs.ErrNotFound)
		}
		ref := i.ID
		if named, err := reference.ParseNormalizedNamed(name); err == nil {
			if tag := reference.FamiliarString(reference.TagNameOnly(named)); slices.Contains(i.RepoTags, tag) {
				ref = tag
			}
		}
		refs = append(refs, ref)
	}
	body, err := s.Engine.ImageSave(ctx, refs)
	if err != nil {
		return nil, fmt.Errorf("save images: %w", err)
	}
	return body, nil
}

// Load loads an archive. An archive must not use names that are reserved for built-in images. These names are removed after
// the load, because only the engine knows all ways in which an archive can name an image.
func (s *Service) Load(ctx context.Context, archive io.Reader) error {
	// The engine may reject an archive before it has read all of it. Its response then has the reason.
	answer, err := s.Engine.ImageLoad(ctx, archive, docker.ImageLoadWithQuiet(true))
	if err != nil {
		return fmt.Errorf("load images: %w", err)
	}
	defer answer.Body.Close()
	var refusals []error
	err = readProgress(answer.Body, func(p Progress) {
		name, ok := strings.CutPrefix(strings.TrimSpace(p.Stream), "Loaded image: ")
		if refusal := pause.CheckName(name); ok && refusal != nil {
			_, untag := s.Engine.ImageRemove(ctx, name, image.RemoveOptions{Force: true}) // also if containers use the image
			refusals = append(refusals, fmt.Errorf("load images: %w", errors.Join(refusal, untag)))
		}
	})
	var refused *streamError
	var syntax *json.SyntaxError
	switch {
	case errors.As(err, &refused):
		err = fmt.Errorf("load images: %w: %w", err, errdefs.ErrInvalidArgument)
	case errors.As(err, &syntax) && !answer.JSON: // a plain text response
		err = nil
	}
	return errors.Join(err, errors.Join(refusals...))
}
