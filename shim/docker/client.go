// Package docker builds the Docker Engine client that the shim works with. It
// is the only package that imports the client library; the areas of the shim
// name the methods they need in small interfaces with the same signatures.
package docker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/versions"
	"github.com/docker/docker/client"
)

// MinAPI is the oldest Engine API the shim works with (Docker 19.03). It is also the
// oldest that engines of today can be told to answer in, so nothing older can be
// tried out.
const MinAPI = "1.40"

// Options of some client methods have types of the client library. These
// aliases let other packages write down the methods' signatures.
type (
	ImageInspectOption = client.ImageInspectOption
	ImageHistoryOption = client.ImageHistoryOption
	ImageLoadOption    = client.ImageLoadOption
	ImageSaveOption    = client.ImageSaveOption
)

// ImageLoadWithQuiet keeps progress messages out of the answer to a load.
func ImageLoadWithQuiet(quiet bool) ImageLoadOption { return client.ImageLoadWithQuiet(quiet) }

// Client is the engine's client. It connects when it is first used.
type Client struct {
	endpoint Endpoint
	observe  Observe // may be nil

	requestTime time.Duration // 0: no limit

	first    *client.Client                // asks for the version, and speaks it from then on
	spoken   atomic.Pointer[client.Client] // nil until a version is agreed
	agreeing chan struct{}                 // held while one is being agreed
}

// New builds a client for the endpoint that the options lead to. It does not
// connect: the first call does, and agrees on the API version then.
func New(o Options) (*Client, error) {
	endpoint, err := Resolve(o)
	if err != nil {
		return nil, err
	}
	first, err := endpoint.dialer()
	if err != nil {
		return nil, err
	}
	built := &Client{endpoint: endpoint, observe: o.Observe, requestTime: o.RequestTimeout, first: first, agreeing: make(chan struct{}, 1)}
	if o.APIVersion != "" {
		if err := CheckAPI(o.APIVersion); err != nil {
			return nil, errors.Join(err, first.Close())
		}
		first.NegotiateAPIVersionPing(types.Ping{APIVersion: o.APIVersion})
		built.spoken.Store(first)
	}
	return built, nil
}

// dialer builds a client that has not agreed on a version.
func (e Endpoint) dialer() (*client.Client, error) {
	over, opts, err := e.transport()
	if err != nil {
		return nil, err
	}
	overHTTP := &http.Client{Transport: over, CheckRedirect: client.CheckRedirect}
	opts = append([]client.Opt{client.WithHTTPClient(overHTTP)}, opts...)
	c, err := client.NewClientWithOpts(append(opts, client.WithAPIVersionNegotiation(), client.WithUserAgent("crishim"))...)
	if err != nil {
		return nil, fmt.Errorf("docker engine at %s: %w", e.Host, err)
	}
	// The library has noted the transport, and put a tracer around it that nobody
	// listens to.
	overHTTP.Transport = over
	return c, nil
}

// Close closes the connections that no call uses.
func (c *Client) Close() error {
	if spoken := c.spoken.Load(); spoken != nil {
		return spoken.Close()
	}
	return c.first.Close()
}

// Endpoint says where the engine is and how that was decided.
func (c *Client) Endpoint() Endpoint { return c.endpoint }

// CheckAPI is an error when the engine is too old for the shim.
func CheckAPI(apiVersion string) error {
	if versions.LessThan(apiVersion, MinAPI) {
		return fmt.Errorf("the docker engine speaks API %s, crishim needs %s or newer: upgrade the engine to 19.03 or newer: %w",
			apiVersion, MinAPI, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// IsUnreachable says whether an error of a client call means that the engine
// could not be reached or went away during the call.
func IsUnreachable(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	if client.IsErrConnectionFailed(err) {
		return true
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return true
	}
	var transport *url.Error
	if errors.As(err, &transport) {
		return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
	}
	return false
}
