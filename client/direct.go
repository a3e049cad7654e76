package client

import (
	"context"
	"errors"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// direct calls a shim in this process. Streams, which few commands have, go over
// its socket.
type direct struct {
	// call is the shim's Invoke behind the interceptors of the link.
	call grpc.UnaryInvoker
	// connect dials the socket.
	connect func() (*grpc.ClientConn, error)

	mu        sync.Mutex // guards these two
	connected *grpc.ClientConn
	closed    bool
}

// newDirectLink is newLink for a shim in this process.
func newDirectLink(o *Options, s Shim, address string) *link {
	l := &link{endpoint: address, api: apiV1, probing: true}
	d := &direct{connect: func() (*grpc.ClientConn, error) { return l.dialShim(o, s) }}
	d.call = chained(func(ctx context.Context, method string, req, reply any, _ *grpc.ClientConn, opts ...grpc.CallOption) error {
		return s.Invoke(ctx, method, req, reply, opts...)
	}, againInterceptor(), l.callInterceptor(o))
	l.calls, l.hangUp = d, d.close
	return l
}

func (l *link) dialShim(o *Options, s Shim) (*grpc.ClientConn, error) {
	address, err := s.Endpoint()
	if err != nil {
		return nil, err
	}
	e, err := ParseEndpoint(address)
	if err != nil {
		return nil, err
	}
	return l.dial(o, e)
}

// chained puts interceptors around a call, the last outermost.
func chained(call grpc.UnaryInvoker, around ...grpc.UnaryClientInterceptor) grpc.UnaryInvoker {
	for _, i := range around {
		next := call
		call = func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, opts ...grpc.CallOption) error {
			return i(ctx, method, req, reply, cc, next, opts...)
		}
	}
	return call
}

// Invoke implements grpc.ClientConnInterface.
func (d *direct) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return d.call(ctx, method, args, reply, nil, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (d *direct) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	cc, err := d.connection()
	if err != nil {
		return nil, &Error{Code: codes.Unavailable, text: "connect to the built-in dockershim: " + err.Error(), err: err}
	}
	return cc.NewStream(ctx, desc, method, opts...)
}

func (d *direct) connection() (*grpc.ClientConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.connected != nil {
		return d.connected, nil
	}
	if d.closed {
		return nil, errors.New("the connection is closed")
	}
	cc, err := d.connect()
	if err == nil {
		d.connected = cc
	}
	return cc, err
}

func (d *direct) close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	if d.connected == nil {
		return nil
	}
	cc := d.connected
	d.connected = nil
	return cc.Close()
}
