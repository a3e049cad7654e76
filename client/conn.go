package client

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Shim is a running embedded shim.
type Shim interface {
	// Endpoint is the unix:// address of its CRI socket, which accepts connections.
	Endpoint() string
	Close() error
}

// StartShim starts the embedded shim on an engine.
type StartShim func(ctx context.Context, e Engine) (Shim, error)

// Engine is the Docker engine that the embedded shim works on.
type Engine struct {
	Host string      // unix:///path, tcp://host:port or ssh://user@host
	From string      // where the host was named, such as "DOCKER_HOST"; "" where it was found by default
	TLS  *tls.Config // for tcp; may be nil
	Err  error       // why it cannot be used

	Version, APIVersion string // the engine's answer to the probe; "" where it was not probed
}

// Options are what to connect to, and how.
type Options struct {
	// RuntimeEndpoint and ImageEndpoint are what a flag, the environment or
	// the config file gave. An empty runtime endpoint means automatic, an
	// empty image endpoint the same one as the runtime's.
	RuntimeEndpoint, ImageEndpoint string
	// ConnectTimeout bounds the wait for an explicit endpoint (2 s when
	// zero) and, when it is shorter than a second, for the known ones too.
	ConnectTimeout time.Duration
	// Timeout, when set, is the limit of every call instead of the limits by
	// kind (see QueryLimit). QueryTimeout replaces only the one for queries, which
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

func (o *Options) knownSockets() []Known {
	if o.Known != nil {
		return o.Known
	}
	return KnownSockets()
}

func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	if o.Dial != nil {
		return o.Dial(ctx, network, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

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
	// Candidates are the endpoints that were probed, in order of precedence.
	Candidates []Candidate

	now            func() time.Time
	runtime, image *criConn
	closeOnce      sync.Once
	closeErr       error
}

// API is the version of CRI that goes over the wire: v1 or v1alpha2.
func (c *Conn) API() string { return c.runtime.api }

// ClientConn is the connection to the runtime, for services other than CRI's.
func (c *Conn) ClientConn() grpc.ClientConnInterface { return c.runtime.cc }

// ImageClientConn is the connection to the image service.
func (c *Conn) ImageClientConn() grpc.ClientConnInterface { return c.image.cc }

// Close ends the connection with its tunnel and the embedded shim. It may be called twice.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		if c.image != c.runtime {
			c.closeErr = c.image.close()
		}
		c.closeErr = errors.Join(c.closeErr, c.runtime.close())
	})
	return c.closeErr
}
