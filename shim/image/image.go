// Package image answers the CRI image service's RPCs: the engine's image store
// seen the CRI's way.
//
// One id names an image everywhere in the shim: the engine's own. It is
// Image.id, PullImageResponse.image_ref, Container.image_id and
// ContainerStatus.image_id. References may come in any form the engine knows:
// id, short id, tag, digest, or tag and digest together.
package image

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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

// Engine is what the image service needs of the Docker client.
type Engine interface {
	Info(ctx context.Context) (system.Info, error)
	DiskUsage(ctx context.Context, o types.DiskUsageOptions) (types.DiskUsage, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error)
	ImageInspect(ctx context.Context, imageID string, o ...docker.ImageInspectOption) (image.InspectResponse, error)
	ImageHistory(ctx context.Context, imageID string, o ...docker.ImageHistoryOption) ([]image.HistoryResponseItem, error)
	ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error)
	ImageRemove(ctx context.Context, imageID string, o image.RemoveOptions) ([]image.DeleteResponse, error)
}

// Options configure the image service.
type Options struct {
	Engine Engine
	Log    *slog.Logger
	// PullProgressDeadline ends a pull that has said nothing for this long.
	PullProgressDeadline time.Duration
	// PauseImage is listed as pinned, so that nobody's garbage collection takes it.
	PauseImage string
}

// DefaultPullProgressDeadline is the one of dockershim and cri-dockerd.
const DefaultPullProgressDeadline = time.Minute

// Service answers the image RPCs.
type Service struct {
	engine   Engine
	log      *slog.Logger
	deadline time.Duration
	pause    string
}

// New makes the service; it calls nothing.
func New(o Options) *Service {
	s := &Service{engine: o.Engine, log: o.Log, deadline: o.PullProgressDeadline, pause: o.PauseImage}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if named, err := reference.ParseNormalizedNamed(s.pause); err == nil {
		s.pause = reference.TagNameOnly(named).String()
	}
	if s.deadline <= 0 {
		s.deadline = DefaultPullProgressDeadline
	}
	return s
}

// ImageStatus describes one image. An image that is not there is an answer
// without an image, not an error.
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

// details returns the image's OCI configuration and its history under "info", as
// containerd does, so that tools written for it find what they look for.
func (s *Service) details(ctx context.Context, i image.InspectResponse) (map[string]string, error) {
	history, err := s.engine.ImageHistory(ctx, i.ID)
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

// inspect resolves any reference; found is false where the engine has no such image.
func (s *Service) inspect(ctx context.Context, ref string) (i image.InspectResponse, found bool, err error) {
	if ref == "" {
		return i, false, fmt.Errorf("the image reference is empty: %w", errdefs.ErrInvalidArgument)
	}
	err = untilRemoved(ctx, func() (bool, error) {
		i, err = s.engine.ImageInspect(ctx, engineReference(ref))
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

// engineReference leaves out the tag where there is a digest too: the
// digest decides, and the engine's store knows images under either, not both.
func engineReference(ref string) string {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return ref
	}
	digested, ok := named.(reference.Canonical)
	if !ok {
		return ref
	}
	plain, err := reference.WithDigest(reference.TrimNamed(named), digested.Digest())
	if err != nil {
		return ref
	}
	return plain.String()
}

// untilRemoved asks again while an image is being removed by somebody else,
// which takes moments, and returns the last answer.
func untilRemoved(ctx context.Context, ask func() (settled bool, err error)) error {
	const pause, tries = 10 * time.Millisecond, 200
	for i := 1; ; i++ {
		settled, err := ask()
		if settled || i == tries {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		}
	}
}
