package disk

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/output"
)

// walkLimit is the maximum number of files and subdirectories that are counted in a directory.
const walkLimit = 100_000

// DirSize returns the disk space of a directory, which need not exist. Above walkLimit the size is a lower bound.
func DirSize(ctx context.Context, path string) (size output.DiskSize, err error) {
	sum, err := bounded.Walk(ctx, path, walkLimit)
	if errors.Is(err, fs.ErrNotExist) {
		return output.DiskSize{}, nil
	}
	size.Bytes = sum.Bytes
	if sum.More {
		size.Bound = output.AtLeast
	}
	return size, err
}

// Subdirs lists the subdirectories of a directory, which need not exist.
func Subdirs(path string) ([]string, error) {
	entries, err := os.ReadDir(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// WritableLayers returns the sizes of the writable layers of containers, by id. Containers whose size the runtime does not
// know are missing. WritableLayers fails if the runtime does not answer.
func WritableLayers(ctx context.Context, conn *client.Conn, images *Images, ids []string) (map[string]uint64, error) {
	sizes := make([]*uint64, len(ids))
	var store *containerd.Store
	if images != nil && images.active != nil {
		store, _ = containerd.Open(ctx, conn.ImageClientConn())
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(8)
	for i, id := range ids {
		g.Go(func() error {
			res, err := conn.Runtime.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: id})
			switch status.Code(err) {
			case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
				return err
			}
			if size, known := WritableLayer(res.GetStats()); known {
				sizes[i] = &size
				return nil
			}
			if store == nil {
				return nil
			}
			n, err := store.Written(ctx, id, images.active[id])
			if err == nil && n >= 0 {
				size := uint64(n)
				sizes[i] = &size
			}
			return nil
		})
	}
	err := g.Wait()
	known := map[string]uint64{}
	for i, id := range ids {
		if sizes[i] != nil {
			known[id] = *sizes[i]
		}
	}
	return known, err
}

// WritableLayer returns the size of a container's writable layer from its statistics. containerd reports 0 without a timestamp
// until it has computed the size.
func WritableLayer(s *runtimeapi.ContainerStats) (size uint64, known bool) {
	layer := s.GetWritableLayer()
	return layer.GetUsedBytes().GetValue(), layer.GetUsedBytes() != nil && layer.GetTimestamp() != 0
}

// Garbage is the disk space that removing items frees.
type Garbage struct {
	items  []kuberuntime.GarbageItem
	sizes  []*output.DiskSize
	images *Images
}

// ReadGarbage asks the runtime for the sizes of images and containers, and adds up the sizes of the files in directories.
func ReadGarbage(ctx context.Context, conn *client.Conn, items []kuberuntime.GarbageItem) (*Garbage, error) {
	ids := map[string][]string{}
	for _, item := range items {
		ids[item.Kind] = append(ids[item.Kind], item.ID)
	}
	g := &Garbage{items, make([]*output.DiskSize, len(items)), &Images{}}
	if len(ids["image"]) > 0 {
		list, err := conn.Image.ListImages(ctx, &runtimeapi.ListImagesRequest{})
		if err != nil {
			return nil, err
		}
		if g.images, err = ReadImages(ctx, conn, list.GetImages(), false); err != nil {
			return nil, err
		}
	} else if _, ok := containerd.Open(ctx, conn.ImageClientConn()); ok && len(ids["container"]) > 0 {
		g.images.active = map[string]string{} // not nil, so that WritableLayers asks containerd for sizes in the default snapshotter
	}
	written, err := WritableLayers(ctx, conn, g.images, ids["container"])
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		var size output.DiskSize
		switch item.Kind {
		case "image":
			size = g.images.Freed(item.ID)
		case "container":
			n, known := written[item.ID]
			if !known {
				continue
			}
			size.Bytes = n
		case "log directory", "pod directory":
			if size, err = DirSize(ctx, filepath.Clean(item.ID)); err != nil {
				return nil, err
			}
		}
		g.sizes[i] = &size
	}
	return g, nil
}

// Size returns the disk space that removing item i alone frees, nil if it is not known.
func (g *Garbage) Size(i int) *output.DiskSize { return g.sizes[i] }

// Sum returns the disk space that removing these items frees, including the parts that only these images share.
func (g *Garbage) Sum(gone []int) output.DiskSize {
	var images []string
	var sum output.DiskSize
	for _, i := range gone {
		switch size := g.sizes[i]; {
		case g.items[i].Kind == "image":
			images = append(images, g.items[i].ID)
		case size == nil:
			sum = sum.Plus(output.DiskSize{Bound: output.AtLeast})
		default:
			sum = sum.Plus(*size)
		}
	}
	return sum.Plus(g.images.Freed(images...))
}
