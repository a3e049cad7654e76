package client

import (
	"context"
	"net"
	"time"
)

// Shim is a running embedded shim.
type Shim interface {
	// Endpoint is the unix:// address of its CRI socket, which accepts connections.
	Endpoint() string
	Close() error
}

// StartShim starts the embedded shim on an engine.
type StartShim func(ctx context.Context, e Engine) (Shim, error)

// Options say what to connect to, and how.
type Options struct {
	// RuntimeEndpoint and ImageEndpoint are what a flag, the environment or
	// the config file gave. An empty runtime endpoint means automatic, an
	// empty image endpoint the same one as the runtime's.
	RuntimeEndpoint, ImageEndpoint string
	// ConnectTimeout bounds the wait for an explicit endpoint (2 s when
	// zero) and, when it is shorter than a second, for the known ones too.
	ConnectTimeout time.Duration
	// Timeout, when set, is the limit of every call instead of the limits by
	// kind (see Limits). QueryTimeout replaces only the one for queries, which
	// is how the config file's timeout is meant.
	Timeout, QueryTimeout time.Duration
	// MaxRetries is how often an explicit endpoint that is absent or refuses
	// is tried again.
	MaxRetries int
	// LookupEnv reads the environment; nil means that nothing is set.
	LookupEnv func(string) (string, bool)
	// Engines lists where a Docker engine may be, best first: at a host, and for ""
	// where docker itself would look; nil knows the system's own socket only.
	Engines func(host string) []Engine
	// StartShim starts the embedded shim; nil means that there is none.
	StartShim StartShim
	// Debug receives one line for each thing that was tried and each call
	// that was made, never a message's content. May be nil.
	Debug func(format string, args ...any)
	// Now is the clock for ages in error messages; nil means time.Now.
	Now func() time.Time

	// Known replaces the sockets that are probed, ProbeTimeout how long that and the
	// search for a Docker engine may take together, and Dial how a network address
	// is reached. They are for tests.
	Known        []Known
	ProbeTimeout time.Duration
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
}

// Limits of Options that are not set.
const (
	// DefaultConnectTimeout is how long an explicit endpoint may take to answer.
	DefaultConnectTimeout = 2 * time.Second
	// ProbeTimeout is how long all known sockets together may take.
	ProbeTimeout = time.Second
)

func (o *Options) debugf(format string, args ...any) {
	if o.Debug != nil {
		o.Debug(format, args...)
	}
}

func (o *Options) now() time.Time {
	if o.Now == nil {
		return time.Now()
	}
	return o.Now()
}

func (o *Options) connectTimeout() time.Duration {
	if o.ConnectTimeout > 0 {
		return o.ConnectTimeout
	}
	return DefaultConnectTimeout
}

func (o *Options) probeTimeout() time.Duration {
	if o.ProbeTimeout > 0 {
		return o.ProbeTimeout
	}
	if o.ConnectTimeout > 0 && o.ConnectTimeout < ProbeTimeout {
		return o.ConnectTimeout
	}
	return ProbeTimeout
}

func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if o.Dial != nil {
		return o.Dial(ctx, network, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}
