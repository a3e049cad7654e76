// Package image implements CRI's image service.
//
// In all messages an image's id is the engine's: Image.id, PullImageResponse.image_ref, Container.image_id and
// ContainerStatus.image_id. References may have any form that the engine accepts: id, short id, tag, digest, or tag and
// digest.
package image

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/docker"
)

type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	DiskUsage(ctx context.Context, o types.DiskUsageOptions) (types.DiskUsage, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error)
	ImageInspect(ctx context.Context, imageID string, o ...docker.ImageInspectOption) (image.InspectResponse, error)
	ImageHistory(ctx context.Context, imageID string, o ...docker.ImageHistoryOption) ([]image.HistoryResponseItem, error)
	ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error)
	ImageRemove(ctx context.Context, imageID string, o image.RemoveOptions) ([]image.DeleteResponse, error)
	ImageSave(ctx context.Context, imageIDs []string, o ...docker.ImageSaveOption) (io.ReadCloser, error)
	ImageLoad(ctx context.Context, input io.Reader, o ...docker.ImageLoadOption) (image.LoadResponse, error)
}

type Options struct {
	Engine Engine
	// PullProgressDeadline cancels a pull without progress; 0: a minute, as in dockershim.
	PullProgressDeadline time.Duration
	// PauseImage is listed as pinned, so that no garbage collection removes it.
	PauseImage string
}

type Service struct{ Options }

func New(o Options) *Service {
	if named, err := reference.ParseNormalizedNamed(o.PauseImage); err == nil {
		o.PauseImage = reference.TagNameOnly(named).String()
	}
	o.PullProgressDeadline = cmp.Or(o.PullProgressDeadline, time.Minute)
	return &Service{o}
}

// ImageStatus returns an empty response for an unknown image.
func (s *Service) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	i, found, err := s.inspect(ctx, r.GetImage().GetImage())
	if err != nil {
		return nil, err
	}
	if !found {
		return &runtimeapi.ImageStatusResponse{}, nil
	}
	resp := &runtimeapi.ImageStatusResponse{Image: convert.ImageDetails(i)}
	resp.Image.Pinned = s.pinned(resp.GetImage())
	resp.Image.Spec = &runtimeapi.ImageSpec{Image: i.ID, Annotations: r.GetImage().GetAnnotations()}
	if r.GetVerbose() {
		resp.Info, err = s.details(ctx, i)
	}
	return resp, err
}

func (s *Service) details(ctx context.Context, i image.InspectResponse) (map[string]string, error) {
	history, err := s.Engine.ImageHistory(ctx, i.ID)
	if err != nil {
		return nil, fmt.Errorf("history of image %s: %w", i.ID, err)
	}
	b, err := json.Marshal(map[string]any{
		"imageSpec": map[string]any{
			"architecture": i.Architecture,
			"os":           i.Os,
			"variant":      i.Variant,
			"created":      i.Created,
			"author":       i.Author,
			"config":       i.Config,
			"rootfs":       map[string]any{"type": i.RootFS.Type, "diff_ids": i.RootFS.Layers},
			"history":      history,
		},
		"storageDriver": i.GraphDriver.Name,
	})
	if err != nil {
		return nil, fmt.Errorf("describe image %s: %w", i.ID, err)
	}
	return map[string]string{"info": string(b)}, nil
}

func (s *Service) inspect(ctx context.Context, ref string) (i image.InspectResponse, found bool, err error) {
	if ref == "" {
		return i, false, fmt.Errorf("the image reference is empty: %w", errdefs.ErrInvalidArgument)
	}
	err = untilRemoved(ctx, func() (bool, error) {
		i, err = s.Engine.ImageInspect(ctx, engineReference(ref))
		return err == nil || !strings.Contains(err.Error(), "layer does not exist"), err
	})
	switch {
	case errdefs.IsNotFound(err):
		return i, false, nil
	case err != nil:
		return i, false, fmt.Errorf("inspect image %s: %w", ref, err)
	case i.ID == "":
		return i, false, fmt.Errorf("inspect image %s: the engine gave no id: %w", ref, errdefs.ErrInternal)
	}
	return i, true, nil
}

// engineReference drops the tag of a reference with a digest, because the engine's store knows an image by either, not
// by both.
func engineReference(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if digested, ok := named.(reference.Canonical); ok && err == nil {
		if plain, err := reference.WithDigest(reference.TrimNamed(named), digested.Digest()); err == nil {
			return plain.String()
		}
	}
	return ref
}

// untilRemoved retries a call until it is done, because another client may be removing the image. It gives up after
// about two seconds and returns the last error.
func untilRemoved(ctx context.Context, call func() (done bool, err error)) error {
	const pause, tries = 10 * time.Millisecond, 200
	for i := 1; ; i++ {
		done, err := call()
		if done || i == tries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
