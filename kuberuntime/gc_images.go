package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/distribution/reference"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/singleflight"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImagePolicy starts the removal of unused images at High percent disk usage, and ends it at Low percent.
type ImagePolicy struct{ High, Low int }

// DefaultImagePolicy is the kubelet's default.
func DefaultImagePolicy() ImagePolicy { return ImagePolicy{High: 85, Low: 80} }

// minImageAge is the minimum age of an image before removal, because a container may be about to use a new image.
const minImageAge = 2 * time.Minute

// imageHistory records when images appeared and were last used, because the CRI does not report it. The kubelet's
// counterpart is imageGCManager. A short-lived process has a nil *imageHistory.
type imageHistory struct{ records map[string]imageRecord }

// imageRecord has the times when an image appeared and was last used. Times before the first list of images are unknown
// and zero.
type imageRecord struct{ first, used time.Time }

// note updates the records from a list of the images.
func (h *imageHistory) note(images []*runtimeapi.Image, used usedImages, now time.Time) {
	if h == nil {
		return
	}
	records := map[string]imageRecord{}
	for _, image := range images {
		record, known := h.records[image.GetId()]
		if !known && h.records != nil {
			record.first = now
		}
		if used.Has(image) {
			record.used = now
		}
		records[image.GetId()] = record
	}
	h.records = records
}

func (h *imageHistory) of(image *runtimeapi.Image) imageRecord {
	if h == nil {
		return imageRecord{}
	}
	return h.records[image.GetId()]
}

var errDiskUnknown = errors.New("the disk of the images cannot be seen")

// PlanImages lists the images to remove until their disk meets the policy, like the kubelet's realImageGCManager.
func (m *Manager) PlanImages(ctx context.Context, policy ImagePolicy) (*Garbage, error) {
	return m.planImages(ctx, policy, nil)
}

func (m *Manager) planImages(ctx context.Context, policy ImagePolicy, history *imageHistory) (*Garbage, error) {
	info, err := m.image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, err
	}
	systems := info.GetImageFilesystems()
	if len(systems) == 0 {
		return nil, fmt.Errorf("%w: the runtime does not report where they are", errDiskUnknown)
	}
	path := systems[0].GetFsId().GetMountpoint()
	var disk unix.Statfs_t
	if err := unix.Statfs(path, &disk); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errDiskUnknown, path, err)
	}
	percent, toFree := policy.excess(disk.Blocks*uint64(disk.Bsize), disk.Bavail*uint64(disk.Bsize))
	if toFree == 0 && history == nil {
		return &Garbage{}, nil // the disk has space, so the calls that find used images are not needed
	}
	images, err := m.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	used, err := ImagesInUse(ctx, m.runtime, m.image)
	if err != nil {
		return nil, err
	}
	now := m.o.Now()
	history.note(images, used.used, now)
	g := &Garbage{Items: unusedImages(images, used.used, toFree, history, now)}
	for i := range g.Items {
		item := &g.Items[i]
		item.Why = fmt.Sprintf("the disk is %d %% full, the limit is %d %%", percent, policy.Low)
		item.guard = func(do func() error) error {
			if unused, err := used.StillUnused(ctx, item.image); err != nil || !unused {
				return err
			}
			return do()
		}
	}
	return g, nil
}

// excess returns how full a disk is in percent, and how many bytes have to be freed on it.
func (p ImagePolicy) excess(capacity, available uint64) (percent int, toFree uint64) {
	if capacity == 0 {
		return 0, 0
	}
	percent = 100 - int(available*100/capacity)
	target := capacity * uint64(100-p.Low) / 100
	if percent < p.High || target <= available {
		return percent, 0
	}
	return percent, target - available
}

// unusedImages picks images that are not used, pinned or new, the least recently used first. Images without a known use
// are sorted by size, the largest first, so that fewer are removed.
func unusedImages(images []*runtimeapi.Image, used usedImages, toFree uint64, history *imageHistory, now time.Time) []GarbageItem {
	candidates := slices.DeleteFunc(slices.Clone(images), func(i *runtimeapi.Image) bool {
		return i.GetPinned() || used.Has(i) || now.Sub(history.of(i).first) < minImageAge
	})
	slices.SortStableFunc(candidates, func(a, b *runtimeapi.Image) int {
		x, y := history.of(a), history.of(b)
		return cmp.Or(x.used.Compare(y.used), x.first.Compare(y.first), cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(a.GetId(), b.GetId()))
	})
	var out []GarbageItem
	var freed uint64
	for _, image := range candidates {
		if freed >= toFree {
			break
		}
		freed += image.GetSize()
		out = append(out, GarbageItem{Kind: "image", ID: image.GetId(), Name: cmp.Or(image.GetRepoTags()...), Size: image.GetSize(), image: image})
	}
	return out
}

// usedImages has the full references of all used images.
type usedImages map[string]bool

// Has reports whether an image is used, by any of its names.
func (u usedImages) Has(image *runtimeapi.Image) bool {
	return slices.ContainsFunc(slices.Concat([]string{image.GetId()}, image.GetRepoTags(), image.GetRepoDigests()), u.has)
}

func (u usedImages) has(name string) bool { return u[fullReference(name)] }

func (u usedImages) add(names ...string) {
	for _, name := range names {
		if name != "" {
			u[fullReference(name)] = true
		}
	}
}

// fullReference normalizes an image name: a manifest says nginx, a runtime lists docker.io/library/nginx:latest. If a
// name has a tag and a digest, the tag is dropped.
func fullReference(name string) string {
	ref, err := reference.ParseAnyReference(name)
	if err != nil {
		return name
	}
	named, ok := ref.(reference.Named)
	if !ok {
		return ref.String() // an id, which runtimes write with its algorithm or without
	}
	if digested, ok := named.(reference.Digested); ok {
		return reference.TrimNamed(named).String() + "@" + digested.Digest().String()
	}
	return reference.TagNameOnly(named).String()
}

// ImageUse finds images that are used by containers, image volumes or sandboxes. Only a container's status has its image
// volumes. containerd before 1.7 does not pin the image of sandboxes. An ImageUse adds images at each look and never drops
// an image, even if its last container was removed since.
type ImageUse struct {
	runtime runtimeapi.RuntimeServiceClient
	images  runtimeapi.ImageServiceClient
	looks   singleflight.Group

	mu   sync.Mutex // guards the fields below
	used usedImages
	seen map[string]bool // containers, by id
}

// ImagesInUse returns an ImageUse after its first look.
func ImagesInUse(ctx context.Context, runtime runtimeapi.RuntimeServiceClient, images runtimeapi.ImageServiceClient) (*ImageUse, error) {
	u := &ImageUse{runtime: runtime, images: images, used: usedImages{}, seen: map[string]bool{}}
	image, err := SandboxImage(ctx, runtime)
	if err != nil {
		return nil, err
	}
	if image == "" {
		err = u.lookAtSandboxes(ctx)
	} else {
		err = u.resolve(ctx, image)
	}
	if err != nil {
		return nil, err
	}
	return u, u.look(ctx)
}

// SandboxImage returns the image that a runtime makes sandboxes from, or "" if its configuration does not name it.
func SandboxImage(ctx context.Context, runtime runtimeapi.RuntimeServiceClient) (string, error) {
	status, err := runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	_ = json.Unmarshal([]byte(status.GetInfo()["config"]), &config) // other runtimes may have another format
	return config.SandboxImage, err
}

// lookAtSandboxes adds the images of sandboxes, for runtimes whose configuration does not name the sandbox image, such as
// containerd since 2.0.
func (u *ImageUse) lookAtSandboxes(ctx context.Context) error {
	list, err := u.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(statusCalls)
	for _, p := range list.GetItems() {
		g.Go(func() error {
			resp, err := u.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.GetId(), Verbose: true})
			if err != nil {
				return ignoreNotFound(err)
			}
			var info struct{ Image string }
			_ = json.Unmarshal([]byte(resp.GetInfo()["info"]), &info) // other runtimes may have another format
			return u.resolve(ctx, info.Image)
		})
	}
	return g.Wait()
}

// Has reports whether an image was in use at the last look.
func (u *ImageUse) Has(image *runtimeapi.Image) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.used.Has(image)
}

// StillUnused looks again, right before an image is removed: only dockershims refuse to remove an image that a container
// needs.
func (u *ImageUse) StillUnused(ctx context.Context, image *runtimeapi.Image) (bool, error) {
	if _, err, _ := u.looks.Do("", func() (any, error) { return nil, u.look(ctx) }); err != nil {
		return false, err
	}
	return !u.Has(image), nil
}

// statusCalls limits concurrent ContainerStatus calls.
const statusCalls = 8

// look adds the images of new containers.
func (u *ImageUse) look(ctx context.Context) error {
	list, err := u.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(statusCalls)
	for _, c := range list.GetContainers() {
		u.mu.Lock()
		known := u.seen[c.GetId()]
		u.used.add(c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage(), c.GetImage().GetUserSpecifiedImage())
		u.mu.Unlock()
		if known {
			continue
		}
		g.Go(func() error {
			resp, err := u.runtime.ContainerStatus(gctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
			if ignoreNotFound(err) != nil {
				return err
			}
			for _, mount := range resp.GetStatus().GetMounts() {
				if err := u.resolve(gctx, mount.GetImage().GetImage()); err != nil {
					return err
				}
			}
			u.mu.Lock()
			defer u.mu.Unlock()
			u.seen[c.GetId()] = true
			return nil
		})
	}
	return g.Wait()
}

// resolve adds a reference that the image list may not have.
func (u *ImageUse) resolve(ctx context.Context, ref string) error {
	u.mu.Lock()
	known := ref == "" || u.used.has(ref)
	u.mu.Unlock()
	if known {
		return nil
	}
	resp, err := u.images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: ref}})
	if err != nil {
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.used.add(ref, resp.GetImage().GetId())
	return nil
}
