package client

import (
	"context"
	"errors"
	"net"
	"net/url"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	apiV1       = "v1"
	apiV1alpha2 = "v1alpha2"

	maxSend = 16 << 20
	// maxReceive is above the 16 MiB that runtimes send at most, because a
	// list from a runtime without that limit should still be shown.
	maxReceive = 256 << 20
)

// criConn is one gRPC connection and what is known about its other end.
type criConn struct {
	cc       *grpc.ClientConn
	endpoint string // as a flag would name it, for errors and for Conn
	api      string // v1 or v1alpha2, once known
	version  *runtimeapi.VersionResponse
	// probing keeps the calls of a probe from Debug, which receives the outcome.
	probing bool
	// tunnel carries the connection to another machine; nil on this one.
	tunnel *sshTunnel
	// stop ends the shim or the tunnel behind the connection; may be nil.
	stop func() error
	// skipped is a hint at a runtime that was found but not taken.
	skipped string

	mu      sync.Mutex // guards dialErr, which gRPC's goroutines write
	dialErr error
}

// lastDialError is how the last attempt to dial ended. gRPC only passes its
// text on, and text is nothing to decide by.
func (c *criConn) lastDialError() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.dialErr
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

// newConn prepares a connection; nothing is dialled before the first call. It is the kubelet's
// NewRemoteRuntimeService.
func newConn(o *Options, e Endpoint) (*criConn, error) {
	c := &criConn{endpoint: e.String(), api: apiV1, probing: true}
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := o.dial(ctx, e.Network, e.Address)
		c.mu.Lock()
		c.dialErr = err
		c.mu.Unlock()
		return conn, err
	}
	var err error
	c.cc, err = grpc.NewClient("passthrough:///"+url.PathEscape(e.Address), // a path may hold what a URL may not
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(dialer),
		grpc.WithNoProxy(),
		grpc.WithAuthority("localhost"), // some servers refuse a path as authority
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff: backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			// Each call has a limit of its own. A shorter one here would turn
			// "does not answer" into "unavailable".
			MinConnectTimeout: time.Hour,
		}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive), grpc.MaxCallSendMsgSize(maxSend)),
		grpc.WithChainUnaryInterceptor(c.callInterceptor(o), retryInterceptor(), listInterceptor(), c.versionUnary()),
		grpc.WithChainStreamInterceptor(c.streamInterceptor(o), c.versionStream()),
	)
	return c, err
}
