package cache

import (
	"context"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"

	"github.com/crishim/crishim/shim/docker"
)

// maxDetails bounds what is remembered about single images.
const maxDetails = 1024

// images are the engine's. One generation is enough for all of them: they change
// seldom, and a name can move from one to another.
type images struct {
	generation uint64
	fresh      bool // list is
	list       []image.Summary
	details    map[string]answer // by the reference that was asked for
}

// answer is what the engine said about one image; that there is none counts.
type answer struct {
	image.InspectResponse
	err error
}

// nameOf is the image as lists of containers show it: the name that the
// container was made with, unless that means another image by now.
func (i images) nameOf(asked, id string) string {
	if asked == id {
		return asked
	}
	named, err := reference.ParseNormalizedNamed(asked)
	if err != nil {
		return id
	}
	name := reference.FamiliarString(reference.TagNameOnly(named))
	for _, s := range i.list {
		if s.ID == id && (slices.Contains(s.RepoTags, name) || slices.Contains(s.RepoDigests, name)) {
			return asked
		}
	}
	return id
}

// ImageList implements the client's method.
func (c *Cache) ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error) {
	if fromMemory(ctx) && !o.All && !o.SharedSize && !o.Manifests && o.Filters.Len() == 0 {
		if list, ok := c.imageList(); ok {
			return list, nil
		}
	}
	return c.engine.ImageList(ctx, o)
}

func (c *Cache) imageList() ([]image.Summary, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.images.list), c.phase == live && c.images.fresh
}

// ImageInspect implements the client's method.
func (c *Cache) ImageInspect(ctx context.Context, ref string, o ...docker.ImageInspectOption) (image.InspectResponse, error) {
	if !fromMemory(ctx) || len(o) > 0 {
		i, err := c.engine.ImageInspect(ctx, ref, o...)
		if errdefs.IsNotFound(err) {
			c.imagesChanged(ctx) // its event is late; who is told that it is gone must not find it
		}
		return i, err
	}
	if a, ok := c.imageDetail(ref); ok {
		return a.InspectResponse, a.err
	}
	return c.readDetail(ctx, ref)
}

func (c *Cache) imageDetail(ref string) (answer, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	detail, ok := c.images.details[ref]
	return detail, ok && c.phase == live
}

// readDetail asks the engine and remembers the answer, unless images changed
// meanwhile.
func (c *Cache) readDetail(ctx context.Context, ref string) (image.InspectResponse, error) {
	c.mu.Lock()
	generation := c.images.generation
	c.mu.Unlock()
	detail, err := c.engine.ImageInspect(ctx, ref)
	if err != nil && !errdefs.IsNotFound(err) {
		return detail, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != off && c.images.generation == generation {
		if len(c.images.details) >= maxDetails {
			clear(c.images.details)
		}
		c.images.details[ref] = answer{detail, err}
	}
	return detail, err
}

// invalidateImages is called with the lock held.
func (c *Cache) invalidateImages() {
	c.images = images{generation: c.tick(), details: map[string]answer{}}
}

// imagesChanged reads the list again after an own call.
func (c *Cache) imagesChanged(ctx context.Context) {
	c.mu.Lock()
	if c.phase == off {
		c.mu.Unlock()
		return
	}
	c.invalidateImages()
	c.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	_ = c.refreshImages(ctx) // when it fails they stay stale
	c.notify()
}

func (c *Cache) refreshImages(ctx context.Context) error {
	c.mu.Lock()
	generation, fresh := c.images.generation, c.images.fresh
	c.mu.Unlock()
	if fresh {
		return nil
	}
	list, err := c.engine.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.images.generation == generation {
		c.images.list, c.images.fresh = list, true
	}
	return nil
}

// warm reads the images that containers were made from, which the status of a
// container tells about.
func (c *Cache) warm(ctx context.Context) error {
	unknown := map[string]bool{}
	c.mu.Lock()
	for id, e := range c.containers {
		if c.stale[id] {
			continue // nothing may be known of it yet
		}
		if _, known := c.images.details[e.detail.Image]; !known {
			unknown[e.detail.Image] = true
		}
	}
	c.mu.Unlock()
	for id := range unknown {
		if _, err := c.readDetail(ctx, id); err != nil && !errdefs.IsNotFound(err) {
			return err
		}
	}
	return nil
}

// sameImages reports whether two lists tell the same of the same images.
func sameImages(a, b []image.Summary) bool {
	key := func(list []image.Summary) string {
		lines := make([]string, len(list))
		for i, s := range list {
			tags, digests := slices.Sorted(slices.Values(s.RepoTags)), slices.Sorted(slices.Values(s.RepoDigests))
			lines[i] = s.ID + " " + strings.Join(tags, " ") + " " + strings.Join(digests, " ")
		}
		slices.Sort(lines)
		return strings.Join(lines, "\n")
	}
	return key(a) == key(b)
}
