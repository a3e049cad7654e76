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

type Shim interface {
	// Endpoint returns the unix:// address of the shim's CRI socket, which already accepts connections.
	Endpoint() string
	Close() error
}

type StartShim func(ctx context.Context, e Engine) (Shim, error)

type Engine = engine.Endpoint

type Options struct {
	// An empty RuntimeEndpoint is discovered. An empty ImageEndpoint is the runtime's.
	RuntimeEndpoint, ImageEndpoint string
	// Images dials the image endpoint first. A separate runtime endpoint is then dialled by the first call that needs
	// it. By default the order is reversed.
	Images bool
	// Relay dials an address on another machine: the runtime's socket for network unix and an empty address, or a
	// loopback address for tcp. RuntimeEndpoint then only names the machine in messages. May be nil.
	Relay func(ctx context.Context, network, address string) (net.Conn, error)
	// ConnectTimeout limits dial and probe of an explicit endpoint; 0: 2 s, or 30 s for ssh:// and Relay. A value below one
	// second also limits discovery.
	ConnectTimeout time.Duration
	// Timeout replaces the limits of calls by kind, see QueryLimit. QueryTimeout replaces the limit of queries only; it is
	// the config file's timeout. 0 keeps the limits. Calls without a limit, such as pulls, stay unlimited.
	Timeout, QueryTimeout time.Duration
	// MaxRetries is the number of retries when an explicit endpoint is missing or refuses; below 0: no limit.
	MaxRetries int
	LookupEnv  func(string) (string, bool) // nil: an empty environment
	// Engines returns the engine at a host, or for an empty host the candidates in docker's lookup order. If Engines
	// is nil, the only candidate is DockerSocket.
	Engines   func(host string) []Engine
	StartShim StartShim // nil: no embedded shim
	// Batch keeps ssh from asking for passwords and host keys, for commands that dial many hosts at once.
	Batch bool
	// Debug receives a line for each attempt and each call, but never message contents. May be nil.
	Debug  func(format string, args ...any)
	Tracer trace.TracerProvider // creates a span for each call; may be nil
	Now    func() time.Time     // clock for ages in errors; nil: time.Now

	// Known replaces the known sockets, and ProbeTimeout the limit of discovery, in tests and for discovery over ssh. Dial
	// replaces the dialler in tests.
	Known        []Known
	ProbeTimeout time.Duration
	Dial         func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	defaultConnectTimeout = 2 * time.Second // for an explicit endpoint
	defaultProbeTimeout   = time.Second     // for all known sockets together
)

func (o *Options) debugf(format string, args ...any) {
	if o.Debug != nil {
		o.Debug(format, args...)
	}
}

// bounded reports whether the limits of bounded.go apply to answers.
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

// Conn is a connection to a CRI runtime. Its clients speak v1 whatever version the runtime has, limit each call by kind
// and rewrite errors for users.
type Conn struct {
	Runtime runtimeapi.RuntimeServiceClient
	Image   runtimeapi.ImageServiceClient
	// The selected endpoints. The embedded shim's is docker://..., not its private socket.
	RuntimeEndpoint, ImageEndpoint string
	Embedded                       bool // the runtime is the embedded shim, using Engine
	Engine                         Engine
	Version                        *runtimeapi.VersionResponse
	// TakenAs is the explicit endpoint if it turned out to be a Docker engine's socket and was used as docker://.
	TakenAs    string
	Candidates []Candidate // probed endpoints, in order of precedence

	now            func() time.Time
	runtime, image *lazyConn // identical if there is one endpoint
	closeOnce      sync.Once
	closeErr       error
}

// LimitCalls limits each call to d unless Options.Timeout is set, even if the caller's deadline is later. It must be
// called before the first call.
func (c *Conn) LimitCalls(d time.Duration) {
	for _, l := range []*lazyConn{c.runtime, c.image} {
		if conn := l.opened(); conn != nil {
			conn.limit = d
		}
	}
}

// API returns the CRI version on the wire: v1 or v1alpha2.
func (c *Conn) API() string {
	if conn := c.runtime.opened(); conn != nil {
		return conn.api
	}
	return apiV1
}

// ClientConn returns the connection to the runtime, for services outside CRI.
func (c *Conn) ClientConn() grpc.ClientConnInterface { return c.runtime }

// DialRuntime opens another connection to the runtime's socket.
func (c *Conn) DialRuntime(ctx context.Context) (net.Conn, error) {
	conn, err := c.runtime.get(ctx)
	if err != nil {
		return nil, err
	}
	return conn.dial(ctx)
}

// DialThere dials an address on the runtime's machine, for example the host of a streaming URL.
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

// Remote returns the endpoint of a runtime on another host, or "" for a local runtime.
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

func (c *Conn) ImageClientConn() grpc.ClientConnInterface { return c.image }

// Close closes the connection and ends its tunnel and the embedded shim. It may be called twice.
func (c *Conn) Close() error {
	c.closeOnce.Do(func() {
		if c.image != c.runtime {
			c.closeErr = c.image.opened().close()
		}
		c.closeErr = errors.Join(c.closeErr, c.runtime.opened().close())
	})
	return c.closeErr
}

// Connect connects to the endpoint in the options, or discovers a runtime. The error is an *Error or a *SyntaxError.
// The kubelet's counterpart is PreInitRuntimeService.
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

// parseEndpoints parses both endpoints before any dial. An endpoint that is not given is nil.
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

// connect dials the endpoint that the command needs first. The other endpoint, if there are two, is dialled by its
// first call.
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

// open starts the embedded shim on an engine. For a CRI runtime it returns the connection of the probe.
func (o *Options) open(ctx context.Context, f found) (*criConn, error) {
	if f.Kind != KindEngine {
		return f.conn, nil
	}
	endpoint := engineEndpoint(f.engine)
	if o.StartShim == nil {
		return nil, &Error{Endpoint: endpoint, Code: codes.Unavailable, text: "connect to " + endpoint + ": there is no embedded dockershim here"}
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second) // a busy engine may answer the probe but start the shim slowly
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

// dialShim asks the shim for its version only if the probe has not asked the engine, because the shim would ask the
// engine again.
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

// remoteEngineReason extracts ssh's error output from an error of the engine client, which adds a made-up host and the
// ssh command line.
func remoteEngineReason(text string) string {
	if _, stderr, found := strings.Cut(text, "stderr="); found {
		return strings.TrimSpace(stderr)
	}
	return "no Docker engine answers there"
}
