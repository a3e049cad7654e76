// Package docker creates the shim's Docker Engine client. No other package imports the client library. The shim's
// services declare the methods they need in small interfaces with the same signatures.
package docker

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/client"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/propagation"
)

// minAPI is the API version of Docker 19.03.
const minAPI = "1.40"

// Aliases for the client library's types in method signatures, for other packages.
type (
	ImageInspectOption = client.ImageInspectOption
	ImageHistoryOption = client.ImageHistoryOption
	ImageLoadOption    = client.ImageLoadOption
	ImageSaveOption    = client.ImageSaveOption
)

func ImageLoadWithQuiet(quiet bool) ImageLoadOption { return client.ImageLoadWithQuiet(quiet) }

// Client negotiates the API version, counts calls and limits their duration.
type Client struct {
	*client.Client

	endpoint  Endpoint
	transport *transport
}

// New does not connect. The first call connects and negotiates the API version.
func New(o Options) (*Client, error) {
	endpoint, err := resolve(o)
	if err != nil {
		return nil, err
	}
	library, overHTTP, err := library(endpoint)
	if err != nil {
		return nil, err
	}
	if o.Tracer != nil {
		overHTTP.Transport = otelhttp.NewTransport(overHTTP.Transport, otelhttp.WithTracerProvider(o.Tracer),
			otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithSpanNameFormatter(spanName))
	}
	t := &transport{base: overHTTP.Transport, limit: o.RequestTimeout, observe: o.Observe, negotiating: make(chan struct{}, 1)}
	overHTTP.Transport = t
	if endpoint.APIVersion != "" {
		if _, err := t.setVersion(endpoint.APIVersion); err != nil {
			return nil, err
		}
	}
	return &Client{Client: library, endpoint: endpoint, transport: t}, nil
}

func library(e Endpoint, more ...client.Opt) (*client.Client, *http.Client, error) {
	base, opts, err := dialer(e)
	if err != nil {
		return nil, nil, err
	}
	overHTTP := &http.Client{Transport: base, CheckRedirect: client.CheckRedirect}
	opts = slices.Concat([]client.Opt{client.WithHTTPClient(overHTTP)}, opts, []client.Opt{client.WithUserAgent("crishim")}, more)
	c, err := client.NewClientWithOpts(opts...)
	if err != nil {
		return nil, nil, fmt.Errorf("docker engine at %s: %w", e.Host, err)
	}
	// Remove the library's tracer, which uses OpenTelemetry's global provider. New adds a tracer for Options.Tracer.
	overHTTP.Transport = base
	return c, overHTTP, nil
}

func (c *Client) Endpoint() Endpoint { return c.endpoint }

func (c *Client) ClientVersion() string {
	if version := c.transport.version.Load(); version != nil {
		return *version
	}
	return ""
}

// ContainerInspect rejects an answer without the fields that every engine sends.
func (c *Client) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	if err := checkName("container", id); err != nil {
		return container.InspectResponse{}, err
	}
	detail, err := c.Client.ContainerInspect(ctx, id)
	if err == nil && (detail.ContainerJSONBase == nil || detail.State == nil || detail.HostConfig == nil || detail.Config == nil || detail.ID == "") {
		err = fmt.Errorf("the engine's answer about container %s is not whole: %w", id, errdefs.ErrInternal)
	}
	return detail, err
}

func (c *Client) ContainerInspectWithRaw(ctx context.Context, id string, size bool) (container.InspectResponse, []byte, error) {
	if err := checkName("container", id); err != nil {
		return container.InspectResponse{}, nil, err
	}
	return c.Client.ContainerInspectWithRaw(ctx, id, size)
}

func (c *Client) ImageInspect(ctx context.Context, ref string, o ...ImageInspectOption) (image.InspectResponse, error) {
	if err := checkName("image", ref); err != nil {
		return image.InspectResponse{}, err
	}
	return c.Client.ImageInspect(ctx, ref, o...)
}

// checkName rejects a name with "." or ".." as a path segment, because it would change the URL of the request.
func checkName(kind, name string) error {
	if slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool { return part == "." || part == ".." }) {
		return fmt.Errorf("no such %s: %s: %w", kind, name, errdefs.ErrNotFound)
	}
	return nil
}

// ContainerStop stops a container and waits, at most endTimeout, until lists show the container as ended.
func (c *Client) ContainerStop(ctx context.Context, id string, o container.StopOptions) error {
	if err := c.Client.ContainerStop(ctx, id, o); err != nil {
		return err
	}
	c.awaitEnd(ctx, id)
	return nil
}

const endTimeout = 10 * time.Second

// awaitEnd waits until the engine has recorded the end of a container. Newer engines answer a stop earlier, and their
// lists still show the container as running. An inspection usually waits until the end is recorded. After a stop without
// SIGKILL the inspection may still show the container as running; awaitEnd then waits for the end.
func (c *Client) awaitEnd(ctx context.Context, id string) {
	ctx, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	for {
		detail, err := c.ContainerInspect(ctx, id)
		if err != nil || !detail.State.Running {
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

func (c *Client) ContainerAttach(ctx context.Context, id string, o container.AttachOptions) (types.HijackedResponse, error) {
	return c.hijack(ctx, "attach", func(negotiated *client.Client) (types.HijackedResponse, error) {
		return negotiated.ContainerAttach(ctx, id, o)
	})
}

func (c *Client) ContainerExecAttach(ctx context.Context, id string, o container.ExecAttachOptions) (types.HijackedResponse, error) {
	return c.hijack(ctx, "start_exec", func(negotiated *client.Client) (types.HijackedResponse, error) {
		return negotiated.ContainerExecAttach(ctx, id, o)
	})
}

// hijack uses a client with the negotiated version, because the library bypasses the transport for these calls.
func (c *Client) hijack(ctx context.Context, operation string, call func(*client.Client) (types.HijackedResponse, error)) (resp types.HijackedResponse, err error) {
	start := time.Now()
	if c.transport.observe != nil {
		defer func() { c.transport.observe(operation, time.Since(start), err) }()
	}
	if c.ClientVersion() == "" {
		if _, err := c.Ping(ctx); err != nil {
			return resp, err
		}
	}
	negotiated, _, err := library(c.endpoint, client.WithVersion(c.ClientVersion()))
	if err != nil {
		return resp, err
	}
	return call(negotiated)
}
