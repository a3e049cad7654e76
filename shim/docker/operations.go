package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	"github.com/docker/docker/client"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Observe is told of every engine call under the operation's name that
// dockershim's metrics used, how long it took and how it ended. Calls that
// stream count until the stream is open.
type Observe func(operation string, took time.Duration, err error)

// Timeout says whether a call ended because its time was up.
func Timeout(err error) bool { return errors.Is(err, context.DeadlineExceeded) }

// observed runs a call that gives a value, once the API version is agreed.
func observed[T any](ctx context.Context, c *Client, operation string, call func(*client.Client) (T, error)) (T, error) {
	start := time.Now()
	v, err := agreed(ctx, c, call)
	if c.observe != nil && operation != uncounted {
		c.observe(operation, time.Since(start), err)
	}
	return v, err
}

// request is an observed call that ends with its answer, for which the engine has
// no longer than the request timeout.
func request[T any](ctx context.Context, c *Client, operation string, call func(context.Context, *client.Client) (T, error)) (T, error) {
	return requestFor(ctx, c, operation, c.requestTime, call)
}

// requestErr is a request that gives nothing.
func requestErr(ctx context.Context, c *Client, operation string, call func(context.Context, *client.Client) error) error {
	return requestErrFor(ctx, c, operation, c.requestTime, call)
}

// requestFor is a request with a time of its own; 0 is no limit.
func requestFor[T any](ctx context.Context, c *Client, operation string, most time.Duration, call func(context.Context, *client.Client) (T, error)) (T, error) {
	if most <= 0 {
		return observed(ctx, c, operation, func(engine *client.Client) (T, error) { return call(ctx, engine) })
	}
	limited, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	v, err := observed(limited, c, operation, func(engine *client.Client) (T, error) { return call(limited, engine) })
	if err != nil && limited.Err() != nil && ctx.Err() == nil {
		err = fmt.Errorf("the docker engine has not answered for %s: %w", most, context.DeadlineExceeded)
	}
	return v, err
}

func requestErrFor(ctx context.Context, c *Client, operation string, most time.Duration, call func(context.Context, *client.Client) error) error {
	_, err := requestFor(ctx, c, operation, most, func(ctx context.Context, c *client.Client) (struct{}, error) { return struct{}{}, call(ctx, c) })
	return err
}

// agreed runs a call that dockershim's metrics did not count.
func agreed[T any](ctx context.Context, c *Client, call func(*client.Client) (T, error)) (v T, err error) {
	engine, err := c.Library(ctx)
	if err != nil {
		return v, err
	}
	return call(engine)
}

func agreedErr(ctx context.Context, c *Client, call func(*client.Client) error) error {
	_, err := agreed(ctx, c, nothing(call))
	return err
}

func nothing(call func(*client.Client) error) func(*client.Client) (struct{}, error) {
	return func(c *client.Client) (struct{}, error) { return struct{}{}, call(c) }
}

// ServerVersion is the client's, observed.
func (c *Client) ServerVersion(ctx context.Context) (types.Version, error) {
	return request(ctx, c, "version", func(ctx context.Context, c *client.Client) (types.Version, error) { return c.ServerVersion(ctx) })
}

// Info is the client's, observed.
func (c *Client) Info(ctx context.Context) (system.Info, error) {
	return request(ctx, c, "info", func(ctx context.Context, c *client.Client) (system.Info, error) { return c.Info(ctx) })
}

// ContainerList is the client's, observed.
func (c *Client) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	return request(ctx, c, "list_containers", func(ctx context.Context, c *client.Client) ([]container.Summary, error) {
		return c.ContainerList(ctx, o)
	})
}

// ContainerInspect is the client's, observed.
func (c *Client) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	if err := plain("container", id); err != nil {
		return container.InspectResponse{}, err
	}
	return request(ctx, c, "inspect_container", func(ctx context.Context, c *client.Client) (container.InspectResponse, error) {
		detail, err := c.ContainerInspect(ctx, id)
		if err == nil {
			err = whole(id, detail)
		}
		return detail, err
	})
}

// whole is an error where an answer about a container lacks what every engine
// tells. So nobody behind this has to ask.
func whole(id string, c container.InspectResponse) error {
	if c.ContainerJSONBase == nil || c.State == nil || c.HostConfig == nil || c.Config == nil || c.ID == "" {
		return fmt.Errorf("the engine's answer about container %s is not whole: %w", id, errdefs.ErrInternal)
	}
	return nil
}

// ContainerCreate is the client's, observed.
func (c *Client) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error) {
	return request(ctx, c, "create_container", func(ctx context.Context, c *client.Client) (container.CreateResponse, error) {
		return c.ContainerCreate(ctx, config, host, n, p, name)
	})
}

// ContainerStart is the client's, observed.
func (c *Client) ContainerStart(ctx context.Context, id string, o container.StartOptions) error {
	return requestErr(ctx, c, "start_container", func(ctx context.Context, c *client.Client) error { return c.ContainerStart(ctx, id, o) })
}

// ContainerStop is the client's, observed. When it comes back, lists know the end too.
func (c *Client) ContainerStop(ctx context.Context, id string, o container.StopOptions) error {
	return requestErrFor(ctx, c, "stop_container", c.stopTime(o.Timeout), func(ctx context.Context, c *client.Client) error {
		err := c.ContainerStop(ctx, id, o)
		if err == nil {
			awaitEnd(ctx, c, id)
		}
		return err
	})
}

// engineGrace is how long an engine waits for a container to end where nobody says.
const engineGrace = 10 * time.Second

// stopTime is how long a stop may take: its grace, which may have no end, comes on top.
func (c *Client) stopTime(grace *int) time.Duration {
	switch {
	case c.requestTime <= 0 || grace != nil && *grace < 0:
		return 0
	case grace == nil:
		return c.requestTime + engineGrace
	}
	return c.requestTime + time.Duration(*grace)*time.Second
}

// notingTime is more than an engine needs to note that a container has ended.
const notingTime = 10 * time.Second

// awaitEnd waits until the engine has noted the end of a container that it says
// it has stopped. Newer engines answer before: lists say that it runs until the
// end is written down, which locks the container, so that its inspection waits.
// One that had no time to end by itself and needed no kill may even have its end
// still to come. What goes wrong here is no reason for the stop to fail.
func awaitEnd(ctx context.Context, c *client.Client, id string) {
	ctx, cancel := context.WithTimeout(ctx, notingTime)
	defer cancel()
	for {
		have, err := c.ContainerInspect(ctx, id)
		if err != nil || have.ContainerJSONBase == nil || have.State == nil || !have.State.Running {
			return
		}
		ended, failed := c.ContainerWait(ctx, id, container.WaitConditionNotRunning)
		select {
		case <-ended:
		case err := <-failed:
			if err != nil {
				return
			}
		}
	}
}

// ContainerRemove is the client's, observed.
func (c *Client) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	return requestErr(ctx, c, "remove_container", func(ctx context.Context, c *client.Client) error { return c.ContainerRemove(ctx, id, o) })
}

// ContainerUpdate is the client's, observed.
func (c *Client) ContainerUpdate(ctx context.Context, id string, o container.UpdateConfig) (container.UpdateResponse, error) {
	return request(ctx, c, "update_container", func(ctx context.Context, c *client.Client) (container.UpdateResponse, error) {
		return c.ContainerUpdate(ctx, id, o)
	})
}

// ContainerLogs is the client's, observed.
func (c *Client) ContainerLogs(ctx context.Context, id string, o container.LogsOptions) (io.ReadCloser, error) {
	return observed(ctx, c, "logs", func(c *client.Client) (io.ReadCloser, error) { return c.ContainerLogs(ctx, id, o) })
}

// ContainerAttach is the client's, observed.
func (c *Client) ContainerAttach(ctx context.Context, id string, o container.AttachOptions) (types.HijackedResponse, error) {
	return observed(ctx, c, "attach", func(c *client.Client) (types.HijackedResponse, error) { return c.ContainerAttach(ctx, id, o) })
}

// ContainerExecCreate is the client's, observed.
func (c *Client) ContainerExecCreate(ctx context.Context, id string, o container.ExecOptions) (container.ExecCreateResponse, error) {
	return request(ctx, c, "create_exec", func(ctx context.Context, c *client.Client) (container.ExecCreateResponse, error) {
		return c.ContainerExecCreate(ctx, id, o)
	})
}

// ContainerExecAttach is the client's, observed.
func (c *Client) ContainerExecAttach(ctx context.Context, id string, o container.ExecAttachOptions) (types.HijackedResponse, error) {
	return observed(ctx, c, "start_exec", func(c *client.Client) (types.HijackedResponse, error) { return c.ContainerExecAttach(ctx, id, o) })
}

// ContainerExecInspect is the client's, observed.
func (c *Client) ContainerExecInspect(ctx context.Context, id string) (container.ExecInspect, error) {
	return request(ctx, c, "inspect_exec", func(ctx context.Context, c *client.Client) (container.ExecInspect, error) {
		return c.ContainerExecInspect(ctx, id)
	})
}

// ImageList is the client's, observed.
func (c *Client) ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error) {
	return request(ctx, c, "list_images", func(ctx context.Context, c *client.Client) ([]image.Summary, error) {
		return c.ImageList(ctx, o)
	})
}

// ImageInspect is the client's, observed.
func (c *Client) ImageInspect(ctx context.Context, ref string, o ...ImageInspectOption) (image.InspectResponse, error) {
	if err := plain("image", ref); err != nil {
		return image.InspectResponse{}, err
	}
	return request(ctx, c, "inspect_image", func(ctx context.Context, c *client.Client) (image.InspectResponse, error) {
		return c.ImageInspect(ctx, ref, o...)
	})
}

// ImageHistory is the client's, observed.
func (c *Client) ImageHistory(ctx context.Context, ref string, o ...ImageHistoryOption) ([]image.HistoryResponseItem, error) {
	return request(ctx, c, "image_history", func(ctx context.Context, c *client.Client) ([]image.HistoryResponseItem, error) {
		return c.ImageHistory(ctx, ref, o...)
	})
}

// ImagePull is the client's, observed.
func (c *Client) ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error) {
	return observed(ctx, c, "pull_image", func(c *client.Client) (io.ReadCloser, error) { return c.ImagePull(ctx, ref, o) })
}

// ImageRemove is the client's, observed.
func (c *Client) ImageRemove(ctx context.Context, ref string, o image.RemoveOptions) ([]image.DeleteResponse, error) {
	return request(ctx, c, "remove_image", func(ctx context.Context, c *client.Client) ([]image.DeleteResponse, error) {
		return c.ImageRemove(ctx, ref, o)
	})
}

// Events is the client's, once the API version is agreed.
func (c *Client) Events(ctx context.Context, o events.ListOptions) (<-chan events.Message, <-chan error) {
	engine, err := c.Library(ctx)
	if err != nil {
		failed := make(chan error, 1)
		failed <- err
		return make(chan events.Message), failed
	}
	return engine.Events(ctx, o)
}
