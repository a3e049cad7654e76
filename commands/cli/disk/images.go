// Package disk computes the disk usage of a runtime's node and the space that can be reclaimed, for df, gc and rmi with
// --all or --prune. The runtime reports the sizes of images and containers. Only the directories of logs and of pods,
// including a kubelet's pods, are walked, up to a limit.
package disk

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/output"
)

// Images are the images of a runtime, split into parts that several images may share: layers, unpacked or not.
type Images struct {
	sizes   []int64
	parts   map[string][]int32 // image ids to indices in sizes
	holders []int              // for each part, the number of images that share it, plus one if containerd's containers do
	bound   string             // accuracy of sums: AtMost counts a shared layer for each image, AtLeast omits shared layers, "" is exact
	// used has the ids of images that a container of the shim's engine uses, also outside of pods. It is nil for other
	// runtimes.
	used   map[string]bool
	came   map[string]time.Time
	active map[string]string // ids of containerd's containers to their snapshotters; nil for other runtimes
}

// ReadImages asks the runtime for the parts of each image. If times is set, it also asks when each image was pulled, for
// Came. With Docker this takes a call for each image.
func ReadImages(ctx context.Context, conn *client.Conn, list []*runtimeapi.Image, times bool) (*Images, error) {
	i, held, err := readImages(ctx, conn, list, times)
	if err != nil {
		return nil, fmt.Errorf("disk usage of images: %w", err)
	}
	i.count(held)
	return i, nil
}

// count computes holders. held lists the parts that containerd's containers use: removing the images does not free these
// parts.
func (i *Images) count(held []int32) {
	i.holders = make([]int, len(i.sizes))
	for _, parts := range i.parts {
		for _, n := range parts {
			i.holders[n]++
		}
	}
	for _, n := range held {
		i.holders[n]++
	}
}

func readImages(ctx context.Context, conn *client.Conn, list []*runtimeapi.Image, times bool) (i *Images, held []int32, err error) {
	answer, err := api.NewCrishimClient(conn.ImageClientConn()).ImageUsage(ctx, &api.ImageUsageRequest{Times: times})
	switch {
	case err == nil:
		return ofShim(answer), nil, nil
	case !errors.Is(err, client.ErrNotDockershim):
		return nil, nil, err
	}
	if store, ok := containerd.Open(ctx, conn.ImageClientConn()); ok {
		ctx, cancel := context.WithTimeoutCause(ctx, client.ChangeLimit, fmt.Errorf("containerd has not listed its content for %s", client.ChangeLimit))
		defer cancel()
		usage, err := store.Usage(ctx)
		if err != nil {
			return nil, nil, errors.Join(context.Cause(ctx), err)
		}
		return &Images{sizes: usage.Sizes, parts: usage.Images, came: usage.Came, active: usage.Active}, usage.Held, nil
	}
	i = &Images{parts: map[string][]int32{}, bound: output.AtMost}
	for n, image := range list {
		i.sizes = append(i.sizes, int64(image.GetSize())) //nolint:gosec // no image is larger
		i.parts[image.GetId()] = []int32{int32(n)}        //nolint:gosec // an index of what is in memory
	}
	return i, nil, nil
}

func ofShim(answer *api.ImageUsageResponse) *Images {
	i := &Images{sizes: answer.GetLayerSizes(), parts: map[string][]int32{}, used: map[string]bool{}, came: map[string]time.Time{}}
	i.bound = map[api.ImageUsageResponse_Layers]string{api.ImageUsageResponse_OWN: output.AtLeast, api.ImageUsageResponse_MERGED: output.AtMost}[answer.GetLayers()]
	for _, one := range answer.GetImages() {
		layers := slices.DeleteFunc(one.GetLayers(), func(n int32) bool { return n < 0 || int(n) >= len(i.sizes) })
		i.parts[one.GetId()], i.used[one.GetId()] = layers, one.GetUsed()
		if at := one.GetCameUnixNano(); at != 0 {
			i.came[one.GetId()] = time.Unix(0, at)
		}
	}
	return i
}

// Exact reports whether the parts of all images are known.
func (i *Images) Exact() bool { return i.bound == "" }

// Used reports whether a container of the shim's engine uses the image. CRI may not know the container. For other
// runtimes, Used returns false.
func (i *Images) Used(id string) bool { return i.used[id] }

// Came returns when an image was last pulled or loaded, with Docker also built or tagged. The second result is false if
// the time is unknown.
func (i *Images) Came(id string) (time.Time, bool) {
	at, known := i.came[id]
	return at, known
}

// Total returns the size of the parts that images or containers use, with each part counted once.
func (i *Images) Total() output.DiskSize {
	sum := output.DiskSize{Bound: i.bound}
	for n, size := range i.sizes {
		if i.holders[n] > 0 {
			sum.Bytes += uint64(max(size, 0))
		}
	}
	return sum
}

// Size returns the size of an image with the parts that it shares, and false if the size is not known.
func (i *Images) Size(id string) (output.DiskSize, bool) {
	parts, known := i.parts[id]
	var sum output.DiskSize
	for _, n := range parts {
		sum.Bytes += uint64(max(i.sizes[n], 0))
	}
	return sum, known && i.Exact()
}

// Freed returns the disk space that removing these images frees: the parts that no other image uses. With containerd,
// Freed omits the parts that containers use. With other runtimes, the caller must omit images in use.
func (i *Images) Freed(ids ...string) output.DiskSize {
	sum, gone := output.DiskSize{Bound: i.bound}, map[int32]int{}
	for _, id := range ids {
		for _, n := range i.parts[id] {
			if gone[n]++; gone[n] == i.holders[n] {
				sum.Bytes += uint64(max(i.sizes[n], 0))
			}
		}
	}
	if len(gone) == 0 {
		sum.Bound = ""
	}
	return sum
}
