package image

import (
	"context"
	"encoding/json"
	"fmt"

	dockerimage "github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
)

// ImageStatus describes one image. An image that is not there is an answer
// without an image, not an error.
func (s *Service) ImageStatus(ctx context.Context, r *runtimeapi.ImageStatusRequest) (*runtimeapi.ImageStatusResponse, error) {
	i, found, err := inspect(ctx, s.engine, r.GetImage().GetImage())
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

// details gives the image's OCI configuration and its history under "info", as
// containerd does, so that tools written for it find what they look for.
func (s *Service) details(ctx context.Context, i dockerimage.InspectResponse) (map[string]string, error) {
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
