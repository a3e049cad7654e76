package cache

import (
	"context"
	"io"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/docker/docker/api/types/image"

	"github.com/crishim/crishim/shim/docker"
)

// maxDetails bounds the cache of single images.
const maxDetails = 1024

// images have one generation: they change seldom, and a name can move from one to another.
type images struct {
	generation uint64
	fresh      bool // the list
	list       []image.Summary
	details    map[string]answer // by the reference of the call
}

// answer is the engine's answer about one image, or that there is none.
type answer struct {
	image.InspectResponse
	err error
}

// nameOf returns an image as lists of containers show it: the name that the
// container was created with, unless that is another image's by now.
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

func (c *Cache) ImageInspect(ctx context.Context, ref string, o ...docker.ImageInspectOption) (image.InspectResponse, error) {
	if !fromMemory(ctx) || len(o) > 0 {
		i, err := c.engine.ImageInspect(ctx, ref, o...)
		if errdefs.IsNotFound(err) {
			c.imagesChanged(ctx) // its event is late; it must not be in a list after this
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

// readDetail caches the engine's answer, unless images changed meanwhile.
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

// imagesChanged reads the list again after a call.
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

// warm reads the images of containers, which are in the containers' status.
func (c *Cache) warm(ctx context.Context) error {
	unknown := map[string]bool{}
	c.mu.Lock()
	for id, e := range c.containers {
		if c.stale[id] {
			continue // it may not have been read yet
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

// sameImages reports whether two lists have the same images with the same names.
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

func (c *Cache) ImageRemove(ctx context.Context, ref string, o image.RemoveOptions) ([]image.DeleteResponse, error) {
	defer c.imagesChanged(ctx)
	return c.engine.ImageRemove(ctx, ref, o)
}

// ImagePull reads the list again when the answer is closed, as ImageLoad does: the image is
// there when the answer has been read.
func (c *Cache) ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error) {
	body, err := c.engine.ImagePull(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	return changing{body, func() { c.imagesChanged(ctx) }}, nil
}

func (c *Cache) ImageLoad(ctx context.Context, input io.Reader, o ...docker.ImageLoadOption) (image.LoadResponse, error) {
	answer, err := c.engine.ImageLoad(ctx, input, o...)
	if err == nil {
		answer.Body = changing{answer.Body, func() { c.imagesChanged(ctx) }}
	}
	return answer, err
}

// changing is an answer after which something has changed.
type changing struct {
	io.ReadCloser
	changed func()
}

func (r changing) Close() error {
	defer r.changed()
	return r.ReadCloser.Close()
}
