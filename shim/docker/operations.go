package docker

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Observe is told of every engine call under the operation's name that
// dockershim's metrics used, how long it took and how it ended. Calls that
// stream count until the stream is open.
type Observe func(operation string, took time.Duration, err error)

// Timeout says whether a call ended because its time was up.
func Timeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// observed runs a call that gives a value, once the API version is agreed.
func observed[T any](ctx context.Context, c *Client, operation string, call func() (T, error)) (v T, err error) {
	start := time.Now()
	if err = c.agree(ctx); err == nil {
		v, err = call()
	}
	if c.observe != nil {
		c.observe(operation, time.Since(start), err)
	}
	return v, err
}

// observedErr runs a call that gives nothing.
func observedErr(ctx context.Context, c *Client, operation string, call func() error) error {
	_, err := observed(ctx, c, operation, func() (struct{}, error) { return struct{}{}, call() })
	return err
}

// ServerVersion is the client's, observed.
func (c *Client) ServerVersion(ctx context.Context) (types.Version, error) {
	return observed(ctx, c, "version", func() (types.Version, error) { return c.Client.ServerVersion(ctx) })
}

// Info is the client's, observed.
func (c *Client) Info(ctx context.Context) (system.Info, error) {
	return observed(ctx, c, "info", func() (system.Info, error) { return c.Client.Info(ctx) })
}

// ContainerList is the client's, observed.
func (c *Client) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	return observed(ctx, c, "list_containers", func() ([]container.Summary, error) { return c.Client.ContainerList(ctx, o) })
}

// ContainerInspect is the client's, observed.
func (c *Client) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	if err := plain("container", id); err != nil {
		return container.InspectResponse{}, err
	}
	return observed(ctx, c, "inspect_container", func() (container.InspectResponse, error) { return c.Client.ContainerInspect(ctx, id) })
}

// ContainerCreate is the client's, observed.
func (c *Client) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error) {
	return observed(ctx, c, "create_container", func() (container.CreateResponse, error) {
		return c.Client.ContainerCreate(ctx, config, host, n, p, name)
	})
}

// ContainerStart is the client's, observed.
func (c *Client) ContainerStart(ctx context.Context, id string, o container.StartOptions) error {
	return observedErr(ctx, c, "start_container", func() error { return c.Client.ContainerStart(ctx, id, o) })
}

// ContainerStop is the client's, observed.
func (c *Client) ContainerStop(ctx context.Context, id string, o container.StopOptions) error {
	return observedErr(ctx, c, "stop_container", func() error { return c.Client.ContainerStop(ctx, id, o) })
}

// ContainerRemove is the client's, observed.
func (c *Client) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	return observedErr(ctx, c, "remove_container", func() error { return c.Client.ContainerRemove(ctx, id, o) })
}

// ContainerUpdate is the client's, observed.
func (c *Client) ContainerUpdate(ctx context.Context, id string, o container.UpdateConfig) (container.UpdateResponse, error) {
	return observed(ctx, c, "update_container", func() (container.UpdateResponse, error) { return c.Client.ContainerUpdate(ctx, id, o) })
}

// ContainerLogs is the client's, observed.
func (c *Client) ContainerLogs(ctx context.Context, id string, o container.LogsOptions) (io.ReadCloser, error) {
	return observed(ctx, c, "logs", func() (io.ReadCloser, error) { return c.Client.ContainerLogs(ctx, id, o) })
}

// ContainerAttach is the client's, observed.
func (c *Client) ContainerAttach(ctx context.Context, id string, o container.AttachOptions) (types.HijackedResponse, error) {
	return observed(ctx, c, "attach", func() (types.HijackedResponse, error) { return c.Client.ContainerAttach(ctx, id, o) })
}

// ContainerExecCreate is the client's, observed.
func (c *Client) ContainerExecCreate(ctx context.Context, id string, o container.ExecOptions) (container.ExecCreateResponse, error) {
	return observed(ctx, c, "create_exec", func() (container.ExecCreateResponse, error) { return c.Client.ContainerExecCreate(ctx, id, o) })
}

// ContainerExecAttach is the client's, observed.
func (c *Client) ContainerExecAttach(ctx context.Context, id string, o container.ExecAttachOptions) (types.HijackedResponse, error) {
	return observed(ctx, c, "start_exec", func() (types.HijackedResponse, error) { return c.Client.ContainerExecAttach(ctx, id, o) })
}

// ContainerExecInspect is the client's, observed.
func (c *Client) ContainerExecInspect(ctx context.Context, id string) (container.ExecInspect, error) {
	return observed(ctx, c, "inspect_exec", func() (container.ExecInspect, error) { return c.Client.ContainerExecInspect(ctx, id) })
}

// ImageList is the client's, observed.
func (c *Client) ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error) {
	return observed(ctx, c, "list_images", func() ([]image.Summary, error) { return c.Client.ImageList(ctx, o) })
}

// ImageInspect is the client's, observed.
func (c *Client) ImageInspect(ctx context.Context, ref string, o ...ImageInspectOption) (image.InspectResponse, error) {
	if err := plain("image", ref); err != nil {
		return image.InspectResponse{}, err
	}
	return observed(ctx, c, "inspect_image", func() (image.InspectResponse, error) { return c.Client.ImageInspect(ctx, ref, o...) })
}

// ImageHistory is the client's, observed.
func (c *Client) ImageHistory(ctx context.Context, ref string, o ...ImageHistoryOption) ([]image.HistoryResponseItem, error) {
	return observed(ctx, c, "image_history", func() ([]image.HistoryResponseItem, error) { return c.Client.ImageHistory(ctx, ref, o...) })
}

// ImagePull is the client's, observed.
func (c *Client) ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error) {
	return observed(ctx, c, "pull_image", func() (io.ReadCloser, error) { return c.Client.ImagePull(ctx, ref, o) })
}

// ImageRemove is the client's, observed.
func (c *Client) ImageRemove(ctx context.Context, ref string, o image.RemoveOptions) ([]image.DeleteResponse, error) {
	return observed(ctx, c, "remove_image", func() ([]image.DeleteResponse, error) { return c.Client.ImageRemove(ctx, ref, o) })
}

// Events is the client's, once the API version is agreed.
func (c *Client) Events(ctx context.Context, o events.ListOptions) (<-chan events.Message, <-chan error) {
	if err := c.agree(ctx); err != nil {
		failed := make(chan error, 1)
		failed <- err
		return make(chan events.Message), failed
	}
	return c.Client.Events(ctx, o)
}
