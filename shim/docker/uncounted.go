package docker

import (
	"context"
	"io"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
)

// What dockershim's metrics did not count, or what only a shim's extras need.

// uncounted is the operation of requests that nobody counts.
const uncounted = ""

// Ping is the client's: a sign of life.
func (c *Client) Ping(ctx context.Context) error {
	return agreedErr(ctx, c, func(c *client.Client) error {
		_, err := c.Ping(ctx)
		return err
	})
}

// ContainerKill is the client's.
func (c *Client) ContainerKill(ctx context.Context, id, signal string) error {
	return requestErr(ctx, c, uncounted, func(ctx context.Context, c *client.Client) error { return c.ContainerKill(ctx, id, signal) })
}

// ContainerResize is the client's.
func (c *Client) ContainerResize(ctx context.Context, id string, o container.ResizeOptions) error {
	return requestErr(ctx, c, uncounted, func(ctx context.Context, c *client.Client) error { return c.ContainerResize(ctx, id, o) })
}

// ContainerExecResize is the client's.
func (c *Client) ContainerExecResize(ctx context.Context, execID string, o container.ResizeOptions) error {
	return requestErr(ctx, c, uncounted, func(ctx context.Context, c *client.Client) error { return c.ContainerExecResize(ctx, execID, o) })
}

// ContainerStatsOneShot is the client's.
func (c *Client) ContainerStatsOneShot(ctx context.Context, id string) (container.StatsResponseReader, error) {
	return agreed(ctx, c, func(c *client.Client) (container.StatsResponseReader, error) { return c.ContainerStatsOneShot(ctx, id) })
}

// ContainerInspectWithRaw is the client's, for the size of what the container has
// written, which the engine may have to walk for.
func (c *Client) ContainerInspectWithRaw(ctx context.Context, id string, size bool) (detail container.InspectResponse, raw []byte, err error) {
	if err := plain("container", id); err != nil {
		return detail, nil, err
	}
	detail, err = agreed(ctx, c, func(c *client.Client) (detail container.InspectResponse, err error) {
		detail, raw, err = c.ContainerInspectWithRaw(ctx, id, size)
		return detail, err
	})
	return detail, raw, err
}

// ContainerStatPath is the client's.
func (c *Client) ContainerStatPath(ctx context.Context, id, path string) (container.PathStat, error) {
	return request(ctx, c, uncounted, func(ctx context.Context, c *client.Client) (container.PathStat, error) {
		return c.ContainerStatPath(ctx, id, path)
	})
}

// CopyFromContainer is the client's.
func (c *Client) CopyFromContainer(ctx context.Context, id, path string) (content io.ReadCloser, stat container.PathStat, err error) {
	err = agreedErr(ctx, c, func(c *client.Client) error {
		content, stat, err = c.CopyFromContainer(ctx, id, path)
		return err
	})
	return content, stat, err
}

// CopyToContainer is the client's.
func (c *Client) CopyToContainer(ctx context.Context, id, path string, content io.Reader, o container.CopyToContainerOptions) error {
	return agreedErr(ctx, c, func(c *client.Client) error { return c.CopyToContainer(ctx, id, path, content, o) })
}

// ImageLoad is the client's.
func (c *Client) ImageLoad(ctx context.Context, input io.Reader, o ...ImageLoadOption) (image.LoadResponse, error) {
	return agreed(ctx, c, func(c *client.Client) (image.LoadResponse, error) { return c.ImageLoad(ctx, input, o...) })
}

// DiskUsage is the client's.
func (c *Client) DiskUsage(ctx context.Context, o types.DiskUsageOptions) (types.DiskUsage, error) {
	return agreed(ctx, c, func(c *client.Client) (types.DiskUsage, error) { return c.DiskUsage(ctx, o) })
}
