package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ImagePolicy says when unused images go: from High percent of the disk on, until Low.
type ImagePolicy struct{ High, Low int }

// DefaultImagePolicy is the kubelet's.
func DefaultImagePolicy() ImagePolicy { return ImagePolicy{High: 85, Low: 80} }

// disk is the size of a file system and what is free on it.
type disk struct{ capacity, available uint64 }

// minImageAge is how long an image stays that was seen to come: somebody is about to use it.
const minImageAge = 2 * time.Minute

// imageUse is what the CRI does not tell and a process that stays can see: since when an image is
// there, and when it was last used. It is nil for one that does not stay, and knows nothing then.
type imageUse struct{ records map[string]imageRecord }

// imageRecord has no times of what came, or was used, before we looked.
type imageRecord struct{ first, used time.Time }

// note updates the records after a look at the images.
func (u *imageUse) note(images []*runtimeapi.Image, inUse map[string]bool, now time.Time) {
	if u == nil {
		return
	}
	records := map[string]imageRecord{}
	for _, image := range images {
		record, known := u.records[image.GetId()]
		if !known && u.records != nil {
			record.first = now
		}
		if isUsed(image, inUse) {
			record.used = now
		}
		records[image.GetId()] = record
	}
	u.records = records
}

func (u *imageUse) of(image *runtimeapi.Image) imageRecord {
	if u == nil {
		return imageRecord{}
	}
	return u.records[image.GetId()]
}

// PlanImages says which images would go to bring the disk that they are on under the
// policy. Where the disk cannot be seen (a runtime on another host) that is an error.
func (m *Manager) PlanImages(ctx context.Context, policy ImagePolicy) (*Garbage, error) {
	return m.planImages(ctx, policy, nil)
}

func (m *Manager) planImages(ctx context.Context, policy ImagePolicy, use *imageUse) (*Garbage, error) {
	info, err := m.image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	if err != nil {
		return nil, err
	}
	d, err := diskOf(info)
	if err != nil {
		return nil, err
	}
	images, err := m.ListImages(ctx)
	if err != nil {
		return nil, err
	}
	list, err := m.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	containers := list.GetContainers()
	sandbox, err := m.sandboxImage(ctx)
	if err != nil {
		return nil, err
	}
	images = slices.DeleteFunc(images, func(i *runtimeapi.Image) bool { return sandbox != "" && i.GetId() == sandbox })
	used, now := inUse(containers), m.o.Now()
	if use == nil && len(unusedImages(images, used, d, policy, use, now)) == 0 {
		return &Garbage{}, nil // nearly always: what is mounted need not be asked
	}
	mounted, err := m.mountedImages(ctx, containers)
	if err != nil {
		return nil, err
	}
	maps.Copy(used, mounted)
	use.note(images, used, now)
	return &Garbage{Items: unusedImages(images, used, d, policy, use, now)}, nil
}

// isUsed reports whether something uses an image, by any of its names.
func isUsed(image *runtimeapi.Image, inUse map[string]bool) bool {
	return slices.ContainsFunc(slices.Concat([]string{image.GetId()}, image.GetRepoTags(), image.GetRepoDigests()), func(ref string) bool { return inUse[ref] })
}

// inUse are the images that containers were made from, by every name that the list has.
func inUse(containers []*runtimeapi.Container) map[string]bool {
	used := map[string]bool{}
	for _, c := range containers {
		for _, ref := range []string{c.GetImageId(), c.GetImageRef(), c.GetImage().GetImage(), c.GetImage().GetUserSpecifiedImage()} {
			used[ref] = true
		}
	}
	return used
}

// mountedImages are the images of image volumes, which only a container's status has.
func (m *Manager) mountedImages(ctx context.Context, containers []*runtimeapi.Container) (map[string]bool, error) {
	used := map[string]bool{}
	for _, c := range containers {
		resp, err := m.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if ignoreNotFound(err) != nil {
			return nil, err
		}
		for _, mount := range resp.GetStatus().GetMounts() {
			ref := mount.GetImage().GetImage()
			if ref == "" || used[ref] {
				continue
			}
			used[ref] = true
			id, err := m.GetImageRef(ctx, ref)
			if err != nil {
				return nil, err
			}
			used[id] = true
		}
	}
	return used, nil
}

// sandboxImage is the id of the image that the runtime makes sandboxes from, "" where it
// does not tell. containerd before 1.7 does not say that it is pinned, and no container in
// the lists is made from it.
func (m *Manager) sandboxImage(ctx context.Context) (string, error) {
	resp, err := m.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return "", err
	}
	var config struct {
		SandboxImage string `json:"sandboxImage"`
	}
	if json.Unmarshal([]byte(resp.GetInfo()["config"]), &config) != nil || config.SandboxImage == "" {
		return "", nil // another runtime's info
	}
	return m.GetImageRef(ctx, config.SandboxImage)
}

func diskOf(info *runtimeapi.ImageFsInfoResponse) (disk, error) {
	systems := info.GetImageFilesystems()
	if len(systems) == 0 {
		return disk{}, errors.New("the runtime does not say where its images are")
	}
	path := systems[0].GetFsId().GetMountpoint()
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return disk{}, fmt.Errorf("file system of the images at %s: %w", path, err)
	}
	return disk{capacity: s.Blocks * uint64(s.Bsize), available: s.Bavail * uint64(s.Bsize)}, nil
}

// unusedImages picks images that nothing uses, that are not pinned and have not just come, the
// least recently used first. Of those that no use is known of the largest go first, so that few go.
func unusedImages(images []*runtimeapi.Image, inUse map[string]bool, d disk, policy ImagePolicy, use *imageUse, now time.Time) []GarbageItem {
	if d.capacity == 0 {
		return nil
	}
	used := 100 - int(d.available*100/d.capacity)
	if used < policy.High {
		return nil
	}
	target := d.capacity * uint64(100-policy.Low) / 100
	if target <= d.available {
		return nil
	}
	toFree := target - d.available
	candidates := slices.DeleteFunc(slices.Clone(images), func(i *runtimeapi.Image) bool {
		return i.GetPinned() || isUsed(i, inUse) || now.Sub(use.of(i).first) < minImageAge
	})
	slices.SortStableFunc(candidates, func(a, b *runtimeapi.Image) int {
		x, y := use.of(a), use.of(b)
		return cmp.Or(x.used.Compare(y.used), x.first.Compare(y.first), cmp.Compare(b.GetSize(), a.GetSize()), cmp.Compare(a.GetId(), b.GetId()))
	})
	var out []GarbageItem
	var freed uint64
	for _, image := range candidates {
		if freed >= toFree {
			break
		}
		freed += image.GetSize()
		out = append(out, GarbageItem{
			Kind: "image", ID: image.GetId(), Name: cmp.Or(image.GetRepoTags()...), Size: image.GetSize(),
			Why: fmt.Sprintf("the disk is %d %% full, %d %% at most are wanted", used, policy.Low),
		})
	}
	return out
}
