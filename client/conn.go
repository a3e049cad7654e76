package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Conn is a connection to a CRI runtime. Its clients speak v1 whatever the
// runtime knows, limit each call by its kind and word errors for people.
type Conn struct {
	Runtime runtimeapi.RuntimeServiceClient
	Image   runtimeapi.ImageServiceClient
	// RuntimeEndpoint and ImageEndpoint are what was chosen. For the embedded
	// shim that is docker://..., not its private socket.
	RuntimeEndpoint, ImageEndpoint string
	// Embedded is set when the runtime is the embedded shim, on Engine.
	Embedded bool
	Engine   Engine
	// Version is the runtime's answer while connecting.
	Version *runtimeapi.VersionResponse
	// Candidates are the endpoints that were looked at, in order of precedence.
	Candidates []Candidate

	now            func() time.Time
	runtime, image *link
	shims          []Shim
	tunnels        []*tunnel
	closeOnce      sync.Once
	closeErr       error
}

// API is the version of CRI that goes over the wire: v1 or v1alpha2.
func (c *Conn) API() string { return c.runtime.api }

// ClientConn is the connection to the runtime for services beside CRI.
func (c *Conn) ClientConn() grpc.ClientConnInterface { return c.runtime.calls }

// ImageClientConn is the connection to the image service.
func (c *Conn) ImageClientConn() grpc.ClientConnInterface { return c.image.calls }

// Close ends the connection with its tunnel and the embedded shim. It may be called twice.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		var errs []error
		if c.image != c.runtime {
			errs = append(errs, c.image.close())
		}
		errs = append(errs, c.runtime.close())
		for _, s := range c.shims {
			errs = append(errs, s.Close())
		}
		for _, t := range c.tunnels {
			errs = append(errs, t.close())
		}
		c.closeErr = errors.Join(errs...)
	})
	return c.closeErr
}

// Connect finds the runtime that the options ask for, or that is there, and
// connects to it. The error is an *Error or a *SyntaxError.
func Connect(ctx context.Context, o Options) (*Conn, error) {
	runtime, image, err := o.parseEndpoints()
	if err != nil {
		return nil, err
	}
	c := &Conn{now: o.now}
	if err := c.connect(ctx, &o, runtime, image); err != nil {
		if cerr := c.Close(); cerr != nil {
			o.debugf("close: %v", cerr)
		}
		return nil, err
	}
	for _, a := range c.Candidates {
		name := ""
		if a.Name != "" {
			name = " (" + a.Name + ")"
		}
		o.debugf("endpoint %s%s: %s: %s, chosen: %t", a.Endpoint, name, a.State, a.Detail, a.Chosen)
	}
	c.runtime.probing, c.image.probing = false, false
	c.Runtime, c.Image = c.runtime.runtime(), c.image.image()
	c.Version = c.runtime.version
	return c, nil
}

// parseEndpoints reads both endpoints before anything is dialled; nil stands
// for one that was not given.
func (o *Options) parseEndpoints() (runtime, image *Endpoint, err error) {
	if o.RuntimeEndpoint != "" {
		e, err := ParseEndpoint(o.RuntimeEndpoint)
		if err != nil {
			return nil, nil, err
		}
		runtime = &e
	}
	if o.ImageEndpoint != "" {
		e, err := ParseEndpoint(o.ImageEndpoint)
		if err != nil {
			return nil, nil, err
		}
		image = &e
	}
	return runtime, image, nil
}

func (c *Conn) connect(ctx context.Context, o *Options, runtime, image *Endpoint) error {
	var err error
	if runtime == nil {
		err = c.automatic(ctx, o)
	} else {
		c.runtime, c.RuntimeEndpoint, err = c.explicit(ctx, o, *runtime)
		c.Embedded = runtime.Docker
	}
	if err != nil {
		return err
	}
	c.image, c.ImageEndpoint = c.runtime, c.RuntimeEndpoint
	if image == nil || runtime != nil && *image == *runtime || image.String() == c.RuntimeEndpoint {
		return nil
	}
	c.image, c.ImageEndpoint, err = c.explicitImage(ctx, o, *image)
	return err
}
