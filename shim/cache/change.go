package cache

import (
	"context"
	"io"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/docker"
)

// The methods here are the client's. However a call ends, what it may have
// changed is read back before it returns.

// ContainerCreate implements the client's method.
func (c *Cache) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error) {
	created, err := c.engine.ContainerCreate(ctx, config, host, n, p, name)
	if created.ID != "" {
		c.changed(ctx, created.ID)
	}
	return created, err
}

// ContainerStart implements the client's method.
func (c *Cache) ContainerStart(ctx context.Context, id string, o container.StartOptions) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerStart(ctx, id, o)
}

// ContainerStop implements the client's method.
func (c *Cache) ContainerStop(ctx context.Context, id string, o container.StopOptions) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerStop(ctx, id, o)
}

// ContainerKill implements the client's method.
func (c *Cache) ContainerKill(ctx context.Context, id, signal string) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerKill(ctx, id, signal)
}

// ContainerRemove implements the client's method.
func (c *Cache) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerRemove(ctx, id, o)
}

// ContainerUpdate implements the client's method.
func (c *Cache) ContainerUpdate(ctx context.Context, id string, u container.UpdateConfig) (container.UpdateResponse, error) {
	defer c.changed(ctx, id)
	return c.engine.ContainerUpdate(ctx, id, u)
}

// ImageRemove implements the client's method.
func (c *Cache) ImageRemove(ctx context.Context, ref string, o image.RemoveOptions) ([]image.DeleteResponse, error) {
	defer c.imagesChanged(ctx)
	return c.engine.ImageRemove(ctx, ref, o)
}

// ImagePull implements the client's method. The image is there when the answer
// has been read.
func (c *Cache) ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error) {
	body, err := c.engine.ImagePull(ctx, ref, o)
	if err != nil {
		return nil, err
	}
	return changing{body, func() { c.imagesChanged(ctx) }}, nil
}

// ImageLoad implements the client's method, likewise.
func (c *Cache) ImageLoad(ctx context.Context, input io.Reader, o ...docker.ImageLoadOption) (image.LoadResponse, error) {
	answer, err := c.engine.ImageLoad(ctx, input, o...)
	if err == nil {
		answer.Body = changing{answer.Body, func() { c.imagesChanged(ctx) }}
	}
	return answer, err
}

// changing is an answer that tells of a change as it is read.
type changing struct {
	io.ReadCloser
	changed func()
}

// Close implements io.Closer.
func (r changing) Close() error {
	defer r.changed()
	return r.ReadCloser.Close()
}
