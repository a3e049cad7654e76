package client

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	apiV1       = "v1"
	apiV1alpha2 = "v1alpha2"

	maxSend    = 16 << 20
	maxReceive = 256 << 20 // most runtimes send at most 16 MiB, but not all
)

// criConn is a gRPC connection to a runtime.
type criConn struct {
	cc       *grpc.ClientConn
	endpoint string // in the form of --runtime-endpoint
	api      string // v1 or v1alpha2, once negotiated
	version  *runtimeapi.VersionResponse
	limit    time.Duration // overrides the limits by kind of call; 0: no override
	// probing suppresses Debug output for the calls of a probe, because the probe logs its outcome.
	probing bool
	// dial opens another connection to the same socket.
	dial func(ctx context.Context) (net.Conn, error)
	// there dials an address on the runtime's machine; nil if this machine can dial it.
	there   func(ctx context.Context, network, address string) (net.Conn, error)
	stop    func() error // ends the shim or the tunnel of this connection; may be nil
	skipped string       // hint about a runtime that was found but skipped

	mu      sync.Mutex // guards dialErr, which gRPC's goroutines write
	dialErr error
}

// lastDialError returns the error of the last dial. gRPC only reports its text.
func (c *criConn) lastDialError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialErr
}

// lazyConn is a connection that its first call opens.
type lazyConn struct {
	open func(context.Context) (*criConn, []found, error)
	conn *criConn
	lock chan struct{} // guards conn; a channel, so that callers can stop waiting when their context ends
}

func newLazyConn(conn *criConn, open func(context.Context) (*criConn, []found, error)) *lazyConn {
	return &lazyConn{conn: conn, open: open, lock: make(chan struct{}, 1)}
}

// opened returns the connection, or nil before the first call.
func (l *lazyConn) opened() *criConn {
	if l == nil {
		return nil
	}
	l.lock <- struct{}{}
	defer func() { <-l.lock }()
	return l.conn
}

func (l *lazyConn) get(ctx context.Context) (*criConn, error) {
	select {
	case l.lock <- struct{}{}:
	case <-ctx.Done():
		return nil, &Error{Code: status.FromContextError(ctx.Err()).Code(), text: "connect: interrupted", err: ctx.Err()}
	}
	defer func() { <-l.lock }()
	if l.conn != nil {
		return l.conn, nil
	}
	conn, _, err := l.open(ctx)
	l.conn = conn
	return conn, err
}

func (l *lazyConn) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	conn, err := l.get(ctx)
	if err != nil {
		return err
	}
	return conn.cc.Invoke(ctx, method, args, reply, opts...)
}

func (l *lazyConn) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	conn, err := l.get(ctx)
	if err != nil {
		return nil, err
	}
	return conn.cc.NewStream(ctx, desc, method, opts...)
}

func (l *lazyConn) skipped() string {
	if conn := l.opened(); conn != nil {
		return conn.skipped
	}
	return ""
}

func (c *criConn) runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(c.cc)
}

func (c *criConn) image() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(c.cc)
}

func (c *criConn) close() error {
	if c == nil {
		return nil
	}
	err := c.cc.Close()
	if c.stop != nil {
		err = errors.Join(err, c.stop())
	}
	return err
}

// newConn creates a connection that is dialled by its first call. The kubelet's counterpart is NewRemoteRuntimeService.
func newConn(o *Options, e Endpoint) (*criConn, error) {
	c := &criConn{endpoint: e.String(), api: apiV1, probing: true}
	if e.Network == relayed {
		c.there = o.Relay
	}
	c.dial = func(ctx context.Context) (net.Conn, error) { return o.dial(ctx, e.Network, e.Address) }
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := c.dial(ctx)
		c.mu.Lock()
		c.dialErr = err
		c.mu.Unlock()
		return conn, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer),
		grpc.WithNoProxy(),
		grpc.WithAuthority("localhost"), // some servers reject a path as authority
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			// Each call has its own limit. A shorter connect timeout would turn "does not answer" into "unavailable".
			MinConnectTimeout: time.Hour,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive), grpc.MaxCallSendMsgSize(maxSend)),
		grpc.WithChainUnaryInterceptor(c.callInterceptor(o), retryInterceptor(), listInterceptor(o), c.versionUnary()),
		grpc.WithChainStreamInterceptor(c.streamInterceptor(o), c.versionStream()),
	}
	if o.bounded() {
		options = append(options, grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.ForceCodecV2(boundedCodec{encoding.GetCodecV2("proto")})))
	}
	if o.Tracer != nil {
		options = append(options, grpc.WithStatsHandler(otelgrpc.NewClientHandler(otelgrpc.WithTracerProvider(o.Tracer), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
	var err error
	c.cc, err = grpc.NewClient("passthrough:///"+url.PathEscape(e.Address), options...) // a path may contain characters that a URL may not
	return c, err
}
