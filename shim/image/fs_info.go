package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImageFsInfo returns the size of all image layers, each counted once.
//
// If the engine's root directory is on this host, the sizes come from files that the engine wrote when it unpacked the
// layers. Otherwise the engine walks the disk.
func (s *Service) ImageFsInfo(ctx context.Context, _ *runtimeapi.ImageFsInfoRequest) (*runtimeapi.ImageFsInfoResponse, error) {
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the docker engine for its root directory: %w", err)
	}
	used, err := s.layerBytes(ctx, filepath.Join(info.DockerRootDir, "image", info.Driver))
	if err != nil {
		return nil, err
	}
	return &runtimeapi.ImageFsInfoResponse{ImageFilesystems: []*runtimeapi.FilesystemUsage{{
		Timestamp: time.Now().UnixNano(),
		FsId:      &runtimeapi.FilesystemIdentifier{Mountpoint: info.DockerRootDir},
		UsedBytes: &runtimeapi.UInt64Value{Value: uint64(used)},
	}}}, nil
}

func (s *Service) layerBytes(ctx context.Context, store string) (int64, error) {
	images, err := s.list(ctx, image.ListOptions{})
	if err != nil {
		return 0, err
	}
	if ownStore(store, images) {
		if sizes, err := layerSizes(store); err == nil {
			var sum int64
			for _, n := range sizes {
				sum += n
			}
			return sum, nil
		}
	}
	usage, err := s.Engine.DiskUsage(ctx, types.DiskUsageOptions{Types: []types.DiskUsageObject{types.ImageObject}})
	if err != nil {
		return 0, fmt.Errorf("ask the docker engine for the size of its images: %w", err)
	}
	return usage.LayersSize, nil
}

// ownStore reports whether a directory is this engine's image store. The same path on this host may belong to another
// engine.
func ownStore(store string, images []image.Summary) bool {
	for _, i := range images {
		_, hex, _ := strings.Cut(i.ID, ":")
		if hex == "" || filepath.Base(hex) != hex {
			return false
		}
		if _, err := os.Stat(filepath.Join(store, "imagedb", "content", "sha256", hex)); err != nil {
			return false
		}
	}
	return len(images) > 0
}

// layerSizes returns layer sizes by chain id.
func layerSizes(store string) (map[string]int64, error) {
	dir := filepath.Join(store, "layerdb", "sha256")
	layers, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	sizes := make(map[string]int64, len(layers))
	for _, l := range layers {
		b, err := os.ReadFile(filepath.Join(dir, l.Name(), "size"))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("size of layer %s: %w", l.Name(), err)
		}
		sizes[l.Name()] = n
	}
	return sizes, nil
}
