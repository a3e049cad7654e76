package image

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	godigest "github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"golang.org/x/sync/errgroup"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim/state"
)

type Usage struct {
	// If Own is set, Sizes has one size per image, without the layers that the image shares with other images. If Merged is
	// set, Sizes has one size per image, including shared layers. Otherwise Sizes has the size of each layer.
	Own, Merged bool
	Sizes       []int64
	Images      []ImageUsage
}

type ImageUsage struct {
	ID     string
	Layers []int32 // indices of Sizes
	Used   bool    // by any container of the engine
	Came   time.Time
}

// Usage reads layer sizes if the engine's root directory is on this host. Otherwise the sizes come from the engine, which
// reports the size of shared layers since version 23. With times, each image is inspected for the time at which it arrived.
func (s *Service) Usage(ctx context.Context, times bool) (*Usage, error) {
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the docker engine for its root directory: %w", err)
	}
	images, err := s.list(ctx, image.ListOptions{})
	if err != nil {
		return nil, err
	}
	u := &Usage{}
	store := filepath.Join(info.DockerRootDir, "image", info.Driver)
	if !ownStore(store, images) || u.readLayers(store, images) != nil {
		if images, err = s.list(ctx, image.ListOptions{SharedSize: true}); err != nil {
			return nil, err
		}
		u = mergedLayers(images)
	}
	used, err := s.imagesOfContainers(ctx)
	if err != nil {
		return nil, err
	}
	for i := range u.Images {
		u.Images[i].Used = used[u.Images[i].ID]
		if built := time.Unix(images[i].Created, 0); built.After(u.Images[i].Came) {
			u.Images[i].Came = built
		}
	}
	if !times {
		return u, nil
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i := range u.Images {
		one := &u.Images[i]
		g.Go(func() error {
			// Created is the build time. LastTagTime is the time at which the image arrived.
			detail, found, err := s.inspect(ctx, one.ID)
			if tagged := detail.Metadata.LastTagTime; err == nil && found && tagged.After(one.Came) {
				one.Came = tagged
			}
			return err
		})
	}
	return u, g.Wait()
}

func (u *Usage) readLayers(store string, images []image.Summary) error {
	sizes, err := layerSizes(store)
	if err != nil {
		return err
	}
	indices := map[godigest.Digest]int32{}
	for _, i := range images {
		_, hex, _ := strings.Cut(i.ID, ":")
		file := filepath.Join(store, "imagedb", "content", "sha256", hex)
		text, err := bounded.ReadRegular(file, bounded.Config)
		if err != nil {
			return err
		}
		var config struct {
			RootFS struct {
				Layers []godigest.Digest `json:"diff_ids"`
			} `json:"rootfs"`
		}
		if err := json.Unmarshal(text, &config); err != nil {
			return err
		}
		one := ImageUsage{ID: i.ID}
		if info, err := os.Stat(file); err == nil {
			one.Came = info.ModTime() // engines record no time for a loaded image
		}
		for _, chain := range identity.ChainIDs(config.RootFS.Layers) {
			size, known := sizes[chain.Encoded()]
			if !known {
				return fmt.Errorf("size of layer %s: %w", chain, errdefs.ErrNotFound)
			}
			index, listed := indices[chain]
			if !listed {
				index = int32(len(u.Sizes)) //nolint:gosec // far below 2^31 elements fit into memory
				indices[chain] = index
				u.Sizes = append(u.Sizes, size)
			}
			one.Layers = append(one.Layers, index)
		}
		u.Images = append(u.Images, one)
	}
	return nil
}

func mergedLayers(images []image.Summary) *Usage {
	u := &Usage{Own: !slices.ContainsFunc(images, func(i image.Summary) bool { return i.SharedSize < 0 })}
	u.Merged = !u.Own
	for n, i := range images {
		size := i.Size
		if u.Own {
			size -= i.SharedSize
		}
		u.Sizes = append(u.Sizes, max(size, 0))
		u.Images = append(u.Images, ImageUsage{ID: i.ID, Layers: []int32{int32(n)}}) //nolint:gosec // far below 2^31 elements fit into memory
	}
	return u
}

func (s *Service) imagesOfContainers(ctx context.Context) (map[string]bool, error) {
	containers, err := s.Engine.ContainerList(ctx, container.ListOptions{All: true})
	if err != nil {
		return nil, fmt.Errorf("list containers that use images: %w", err)
	}
	used := map[string]bool{}
	for _, c := range containers {
		used[c.ImageID] = true
		pods, _ := state.DecodeContainer(state.ListedName(c), c.Labels)
		for _, m := range pods.ImageMounts {
			used[m.ID] = true
		}
	}
	return used, nil
}
