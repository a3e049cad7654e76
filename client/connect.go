package client

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/engine"
	"github.com/crishim/crishim/internal/kube"
)

// Shim is a running embedded shim.
type Shim interface {
	// Endpoint is the unix:// address of its CRI socket, which accepts connections.
	Endpoint() string
	Close() error
}

type StartShim func(ctx context.Context, e Engine) (Shim, error)

// Engine is the Docker engine that the embedded shim uses.
type Engine = engine.Endpoint

// Options are what to connect to, and how.
type Options struct {
	// RuntimeEndpoint and ImageEndpoint may be empty: the runtime is discovered then, and the image endpoint is
	// the runtime's.
	RuntimeEndpoint, ImageEndpoint string
	// Images dials the image endpoint at once, if it is another one than the runtime's, and the runtime's
	// with the first call that needs it; else the other way round.
	Images bool
	// Relay dials another machine: the socket of its runtime for the network unix and an empty address, and
	// addresses of its loopback for tcp. RuntimeEndpoint is the machine's name for messages then. May be nil.
	Relay func(ctx context.Context, network, address string) (net.Conn, error)
	// ConnectTimeout is for an explicit endpoint; 0: 2 s. One below a second is for the known ones, too.
	ConnectTimeout time.Duration
	// Timeout is the limit of every call in place of the limits by kind (see QueryLimit), QueryTimeout the limit
	// of queries alone, as the config file's timeout; 0: the usual limits.
	Timeout, QueryTimeout time.Duration
	// MaxRetries is how often an explicit endpoint that is absent or refuses is tried again; below 0 forever.
	MaxRetries int
	LookupEnv  func(string) (string, bool) // nil: an empty environment
	// Engines lists where a Docker engine may be, best first: at a host, and for "" where
	// docker itself would look; nil: DockerSocket.
	Engines   func(host string) []Engine
	StartShim StartShim // nil: there is no embedded shim
	// Batch keeps ssh from asking for passwords and host keys: many hosts are dialled at once.
	Batch bool
	// Debug receives a line for each attempt and each call, never a message's content. May be nil.
	Debug  func(format string, args ...any)
	Tracer trace.TracerProvider // makes a span of each call; may be nil
	Now    func() time.Time     // for ages in error messages; nil: time.Now

	// Known replaces the sockets that are probed, ProbeTimeout the limit of discovery, and Dial
	// the dialler, for tests.
	Known        []Known
	ProbeTimeout time.Duration
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultConnectTimeout = 2 * time.Second // of an explicit endpoint
	defaultProbeTimeout   = time.Second     // of all known sockets together
)

func (o *Options) debugf(format string, args ...any) {
	if o.Debug != nil {
		o.Debug(format, args...)
	}
}

// bounded reports whether answers have the limits of one of many nodes.
func (o *Options) bounded() bool { return o.Batch || o.Relay != nil }

func (o *Options) knownSockets() []Known {
	if o.Known != nil {
		return o.Known
	}
	return KnownSockets()
}

func (o *Options) dial(ctx context.Context, network, address string) (net.Conn, error) {
	switch {
	case network == relayed:
		return o.Relay(ctx, "unix", "")
	case o.Dial != nil:
		return o.Dial(ctx, network, address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, address)
}

// Conn is a connection to a CRI runtime. Its clients speak v1 whatever the runtime knows,
// limit each call by its kind and word errors for people.
type Conn struct {
	Runtime runtimeapi.RuntimeServiceClient
	Image   runtimeapi.ImageServiceClient
	// RuntimeEndpoint and ImageEndpoint were chosen; docker://... for the embedded shim, not its private socket.
	RuntimeEndpoint, ImageEndpoint string
	Embedded                       bool // the runtime is the embedded shim, on Engine
	Engine                         Engine
	Version                        *runtimeapi.VersionResponse
	// TakenAs is the explicit endpoint, where that is a Docker engine's own socket and was taken as docker://.
	TakenAs    string
	Candidates []Candidate // that were probed, in order of precedence

	now            func() time.Time
	runtime, image *lazyConn // the same one where there is one endpoint
	closeOnce      sync.Once
	closeErr       error
}

// LimitCalls limits each call to d, unless Options.Timeout does, also where the caller has a later deadline. It is called
// before the first call.
func (c *Conn) LimitCalls(d time.Duration) {
	for _, l := range []*lazyConn{c.runtime, c.image} {
		if conn := l.opened(); conn != nil {
			conn.limit = d
		}
	}
}

// API returns the version of CRI that goes over the wire: v1 or v1alpha2.
func (c *Conn) API() string {
	if conn := c.runtime.opened(); conn != nil {
		return conn.api
	}
	return apiV1
}

// ClientConn returns the connection to the runtime, for services other than CRI's.
func (c *Conn) ClientConn() grpc.ClientConnInterface { return c.runtime }

// DialRuntime opens another connection to the runtime's socket.
func (c *Conn) DialRuntime(ctx context.Context) (net.Conn, error) {
	conn, err := c.runtime.get(ctx)
	if err != nil {
		return nil, err
	}
	return conn.dial(ctx)
}

// DialThere dials an address on the runtime's machine, such as the host of a streaming URL.
func (c *Conn) DialThere(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := c.runtime.get(ctx)
	switch {
	case err != nil:
		return nil, err
	case conn.there != nil:
		return conn.there(ctx, network, address)
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// Remote names a runtime that is not on this host, "" for one that is.
func (c *Conn) Remote() string {
	if conn := c.runtime.opened(); conn != nil && conn.there != nil {
		return c.RuntimeEndpoint
	}
	for _, endpoint := range []string{c.RuntimeEndpoint, c.Engine.Host} {
		for _, scheme := range []string{"ssh://", "tcp://", "docker+ssh://", "docker+tcp://", "http://", "https://"} {
			if strings.HasPrefix(endpoint, scheme) {
				return endpoint
			}
		}
	}
	return ""
}

// ImageClientConn returns the connection to the image service.
func (c *Conn) ImageClientConn() grpc.ClientConnInterface { return c.image }

// Close ends the connection with its tunnel and the embedded shim. It may be called twice.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		if c.image != c.runtime {
			c.closeErr = c.image.opened().close()
		}
		c.closeErr = errors.Join(c.closeErr, c.runtime.opened().close())
	})
	return c.closeErr
}

// Connect connects to the runtime that the options name, or that it discovers. The error is an
// *Error or a *SyntaxError. The kubelet's PreInitRuntimeService does the same.
func Connect(ctx context.Context, o Options) (*Conn, error) {
	runtime, image, err := o.parseEndpoints()
	if err != nil {
		return nil, err
	}
	c := &Conn{now: o.Now}
	if c.now == nil {
		c.now = time.Now
	}
	if err := c.connect(ctx, &o, runtime, image); err != nil {
		if cerr := c.Close(); cerr != nil {
			o.debugf("close: %v", cerr)
		}
		return nil, err
	}
	for _, candidate := range c.Candidates {
		name := ""
		if candidate.Name != "" {
			name = " (" + candidate.Name + ")"
		}
		o.debugf("endpoint %s%s: %s: %s, chosen: %t", candidate.Endpoint, name, candidate.State, candidate.Detail, candidate.Chosen)
	}
	c.Runtime, c.Image = runtimeapi.NewRuntimeServiceClient(c.runtime), runtimeapi.NewImageServiceClient(c.image)
	return c, nil
}

// parseEndpoints reads both endpoints before anything is dialled. An endpoint that is not given is nil.
func (o *Options) parseEndpoints() (runtime, image *Endpoint, err error) {
	parse := func(text string) *Endpoint {
		if text == "" || err != nil {
			return nil
		}
		var e Endpoint
		e, err = ParseEndpoint(text)
		return &e
	}
	if o.Relay != nil {
		return &Endpoint{Network: relayed, Address: o.RuntimeEndpoint}, nil, nil
	}
	runtime, image = parse(o.RuntimeEndpoint), parse(o.ImageEndpoint)
	return runtime, image, err
}

// connect dials the endpoint that the command needs first. The other one, if there are two, is dialled by
// its first call.
func (c *Conn) connect(ctx context.Context, o *Options, runtime, image *Endpoint) error {
	openRuntime := func(ctx context.Context) (*criConn, []found, error) {
		if runtime != nil {
			return o.openNamed(ctx, *runtime, false)
		}
		list, err := o.discover(ctx, false)
		if err != nil {
			return nil, list, err
		}
		return o.openChosen(ctx, list)
	}
	openImage := func(ctx context.Context) (*criConn, []found, error) { return o.openNamed(ctx, *image, true) }
	separate := image != nil && (runtime == nil || *image != *runtime)
	if separate && o.Images {
		conn, err := c.open(ctx, openImage)
		c.image, c.runtime = newLazyConn(conn, nil), newLazyConn(nil, openRuntime)
		if err == nil {
			c.ImageEndpoint, c.RuntimeEndpoint = conn.endpoint, conn.endpoint
		}
		if runtime != nil {
			c.RuntimeEndpoint = runtime.String()
		}
		return err
	}
	conn, err := c.open(ctx, openRuntime)
	c.runtime = newLazyConn(conn, nil)
	c.image = c.runtime
	if err != nil {
		return err
	}
	c.RuntimeEndpoint, c.ImageEndpoint = conn.endpoint, conn.endpoint
	if c.Embedded && runtime != nil && !runtime.Docker {
		c.TakenAs = runtime.String()
	}
	if separate && image.String() != conn.endpoint {
		c.image, c.ImageEndpoint = newLazyConn(nil, openImage), image.String()
	}
	return nil
}

func (c *Conn) open(ctx context.Context, open func(context.Context) (*criConn, []found, error)) (*criConn, error) {
	conn, list, err := open(ctx)
	c.Candidates = candidates(list)
	if err != nil {
		return nil, err
	}
	chosen := chosenOf(list)
	c.Embedded, c.Engine, c.Version = chosen.Kind == KindEngine, chosen.engine, conn.version
	return conn, nil
}

func (o *Options) openNamed(ctx context.Context, e Endpoint, image bool) (*criConn, []found, error) {
	list, err := o.probeNamed(ctx, e, image)
	if err != nil {
		return nil, list, err
	}
	return o.openChosen(ctx, list)
}

func (o *Options) openChosen(ctx context.Context, list []found) (*criConn, []found, error) {
	skipped := skippedHint(candidates(list))
	conn, err := o.open(ctx, chosenOf(list))
	if err != nil {
		return nil, list, withSkipped(err, skipped)
	}
	conn.skipped, conn.probing = skipped, false
	return conn, list, nil
}

func chosenOf(list []found) (chosen found) {
	for _, f := range list {
		if f.Chosen {
			chosen = f
		}
	}
	return chosen
}

// open starts the embedded shim on an engine. The probe has connected to a runtime already.
func (o *Options) open(ctx context.Context, f found) (*criConn, error) {
	if f.Kind != KindEngine {
		return f.conn, nil
	}
	endpoint := engineEndpoint(f.engine)
	if o.StartShim == nil {
		return nil, &Error{Endpoint: endpoint, Code: codes.Unavailable, text: "connect to " + endpoint + ": there is no embedded dockershim here"}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // the engine may be busy
	defer cancel()
	conn, err := o.startShim(ctx, f.engine)
	if err == nil {
		conn.endpoint = endpoint
		return conn, nil
	}
	e := &Error{Endpoint: endpoint, Code: status.Code(err), text: "start the embedded dockershim on " + endpoint + ": " + plain(err.Error()), err: err}
	if host, ssh := strings.CutPrefix(endpoint, "docker+ssh://"); ssh {
		e.text = "connect to " + endpoint + ": " + remoteEngineReason(e.text)
		e.hint = "try `ssh ssh://" + host + " docker version`: docker has to run there, and this user may use it"
	}
	return nil, e
}

func (o *Options) startShim(ctx context.Context, engine Engine) (*criConn, error) {
	shim, err := o.StartShim(ctx, engine)
	if err != nil {
		return nil, err
	}
	conn, err := o.dialShim(ctx, shim, engine)
	if err != nil {
		if cerr := shim.Close(); cerr != nil {
			o.debugf("close the embedded dockershim: %v", cerr)
		}
		return nil, err
	}
	conn.stop = shim.Close
	return conn, nil
}

// dialShim asks the shim for its version only if the probe did not ask the engine, which the shim
// would ask again.
func (o *Options) dialShim(ctx context.Context, shim Shim, engine Engine) (*criConn, error) {
	e, err := ParseEndpoint(shim.Endpoint())
	if err != nil {
		return nil, err
	}
	conn, err := newConn(o, e)
	if err != nil {
		return nil, err
	}
	conn.version = &runtimeapi.VersionResponse{Version: kube.APIVersion, RuntimeName: "docker", RuntimeVersion: engine.Version, RuntimeApiVersion: apiV1}
	if engine.Version == "" || engine.APIVersion == "" {
		if conn.version, err = conn.runtime().Version(ctx, &runtimeapi.VersionRequest{}); err != nil {
			return nil, errors.Join(err, conn.close())
		}
	}
	return conn, nil
}

// remoteEngineReason returns why an engine behind ssh cannot be used, without the engine client's
// made up host and command line of ssh.
func remoteEngineReason(text string) string {
	if _, stderr, found := strings.Cut(text, "stderr="); found {
		return strings.TrimSpace(stderr)
	}
	return "no Docker engine answers there"
}
