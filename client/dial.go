package client

import (
	"context"
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
	maxSend = 16 << 20
	// maxReceive is above the 16 MiB that runtimes send at most, because a
	// list from a runtime without that limit should still be shown.
	maxReceive = 256 << 20
)

// link is one gRPC connection and what is known about its other end.
type link struct {
	endpoint string
	calls    grpc.ClientConnInterface
	hangUp   func() error // nil where there is nothing to close
	api      string       // v1 or v1alpha2, once known
	version  *runtimeapi.VersionResponse
	// probing keeps the calls of a probe out of Debug, which hears of its outcome.
	probing bool
	// tunnel carries the connection to another machine; nil on this one.
	tunnel *tunnel
	// aside names a runtime that was found but not taken, for hints.
	aside string

	mu      sync.Mutex // guards dialErr, which gRPC's goroutines write
	dialErr error
}

// lastDialError is how the last attempt to dial ended. gRPC only passes its
// text on, and text is nothing to decide by.
func (l *link) lastDialError() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dialErr
}

func (l *link) runtime() runtimeapi.RuntimeServiceClient {
	return runtimeapi.NewRuntimeServiceClient(l.calls)
}

func (l *link) image() runtimeapi.ImageServiceClient {
	return runtimeapi.NewImageServiceClient(l.calls)
}

func (l *link) close() error {
	if l == nil || l.hangUp == nil {
		return nil
	}
	return l.hangUp()
}

// newLink prepares a connection; nothing is dialled before the first call.
func newLink(o *Options, e Endpoint) (*link, error) {
	l := &link{endpoint: e.String(), api: apiV1, probing: true}
	cc, err := l.dial(o, e)
	if err != nil {
		return nil, err
	}
	l.calls, l.hangUp = cc, cc.Close
	return l, nil
}

// dial makes the connection of a link, with the link's interceptors.
func (l *link) dial(o *Options, e Endpoint) (*grpc.ClientConn, error) {
	dialer := func(ctx context.Context, _ string) (net.Conn, error) {
		conn, err := o.dialEndpoint(ctx, e)
		l.mu.Lock()
		l.dialErr = err
		l.mu.Unlock()
		return conn, err
	}
	return grpc.NewClient("passthrough:///"+url.PathEscape(e.Address), // a path may hold what a URL may not
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
		grpc.WithChainUnaryInterceptor(l.callInterceptor(o), retryInterceptor(), l.listInterceptor(), l.versionUnary()),
		grpc.WithChainStreamInterceptor(l.streamInterceptor(o), l.versionStream()),
	)
}

func (o *Options) dialEndpoint(ctx context.Context, e Endpoint) (net.Conn, error) {
	return o.dial(ctx, e.Network, e.Address)
}
