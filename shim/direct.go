package shim

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// direct answers unary calls that come from this process as a server would that
// has the same interceptor, without the connection: no socket, nothing to be
// packed and unpacked. It is a grpc.ServiceRegistrar.
type direct struct {
	interceptor grpc.UnaryServerInterceptor
	services    []service

	mu      sync.Mutex // guards stopped, and running against Add after Wait
	stopped bool
	running sync.WaitGroup
	end     chan struct{} // closed by stop
}

type service struct {
	desc *grpc.ServiceDesc
	impl any
}

func newDirect(i grpc.UnaryServerInterceptor) *direct {
	return &direct{interceptor: i, end: make(chan struct{})}
}

// RegisterService implements grpc.ServiceRegistrar.
func (d *direct) RegisterService(desc *grpc.ServiceDesc, impl any) {
	d.services = append(d.services, service{desc, impl})
}

// Invoke makes a call. As over a connection, it comes back when the context
// ends, whatever the handler does then, and its error is a status.
//
// The handler gets a copy of the request. Its answer is handed over as it is:
// handlers make one for each call.
func (d *direct) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	to, err := d.find(method)
	if err != nil {
		return err
	}
	request := args.(proto.Message) //nolint:errcheck // generated code sends messages only
	if err := sendable(request); err != nil {
		return err
	}
	if md, ok := metadata.FromOutgoingContext(ctx); ok {
		ctx = metadata.NewIncomingContext(ctx, md)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if !d.begin() {
		return status.Error(codes.Unavailable, "the shim has ended")
	}
	call := &directCall{method: method, request: request}
	done := make(chan struct{})
	go func() {
		defer d.running.Done()
		defer close(done)
		call.run(grpc.NewContextWithServerTransportStream(ctx, call), to, d.interceptor)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return status.FromContextError(ctx.Err()).Err()
	case <-d.end:
		return status.Error(codes.Unavailable, "the shim ends")
	}
	if call.err != nil && ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	call.tell(opts)
	if call.err != nil {
		return status.Convert(call.err).Err()
	}
	return handOver(reply.(proto.Message), call.answer) //nolint:errcheck // as above
}

// sendable is the error of a request that a connection could not carry: one with
// text that is not UTF-8. The engine could not be told of it either: its JSON would
// have another character there, and a command would find another file.
func sendable(request proto.Message) error {
	if _, err := proto.Marshal(request); err != nil {
		return status.Errorf(codes.Internal, "grpc: error while marshaling: %v", err)
	}
	return nil
}

// target is a method and who implements it.
type target struct {
	grpc.MethodDesc
	impl any
}

func (d *direct) find(method string) (target, error) {
	name, short, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	for _, s := range d.services {
		if s.desc.ServiceName != name {
			continue
		}
		for _, m := range s.desc.Methods {
			if m.MethodName == short {
				return target{m, s.impl}, nil
			}
		}
		return target{}, status.Errorf(codes.Unimplemented, "unknown method %s for service %s", short, name)
	}
	return target{}, status.Errorf(codes.Unimplemented, "unknown service %s", name)
}

func (d *direct) begin() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return false
	}
	d.running.Add(1)
	return true
}

// stop ends the calls that are under way and waits for their handlers, for
// grace at most.
func (d *direct) stop(grace time.Duration) {
	d.mu.Lock()
	if !d.stopped {
		d.stopped = true
		close(d.end)
	}
	d.mu.Unlock()
	idle := make(chan struct{})
	go func() {
		defer close(idle)
		d.running.Wait()
	}()
	select {
	case <-idle:
	case <-time.After(grace):
	}
}

// directCall is one call. It is what grpc.SetTrailer and the like find in the
// handler's context.
type directCall struct {
	method  string
	request proto.Message
	answer  any
	err     error

	mu              sync.Mutex // guards these two
	header, trailer metadata.MD
}

func (c *directCall) run(ctx context.Context, to target, i grpc.UnaryServerInterceptor) {
	c.answer, c.err = to.Handler(to.impl, ctx, func(in any) error {
		proto.Merge(in.(proto.Message), c.request) //nolint:errcheck // the generated handler decodes into messages only
		return nil
	}, i)
}

// Method implements grpc.ServerTransportStream.
func (c *directCall) Method() string { return c.method }

// SetHeader implements grpc.ServerTransportStream.
func (c *directCall) SetHeader(md metadata.MD) error { return c.add(&c.header, md) }

// SendHeader implements grpc.ServerTransportStream. Headers go with the answer.
func (c *directCall) SendHeader(md metadata.MD) error { return c.add(&c.header, md) }

// SetTrailer implements grpc.ServerTransportStream.
func (c *directCall) SetTrailer(md metadata.MD) error { return c.add(&c.trailer, md) }

func (c *directCall) add(to *metadata.MD, md metadata.MD) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = metadata.Join(*to, md)
	return nil
}

// tell gives the caller what goes beside the answer. What else options ask for
// is about a connection.
func (c *directCall) tell(opts []grpc.CallOption) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range opts {
		switch o := o.(type) {
		case grpc.HeaderCallOption:
			*o.HeaderAddr = c.header
		case grpc.TrailerCallOption:
			*o.TrailerAddr = c.trailer
		}
	}
}

// handOver moves what is in an answer to the message that the caller reads.
func handOver(to proto.Message, answer any) error {
	from, ok := answer.(proto.Message)
	if !ok || from.ProtoReflect().Descriptor() != to.ProtoReflect().Descriptor() {
		return status.Error(codes.Internal, fmt.Sprintf("the answer is a %T, not a %T", answer, to))
	}
	proto.Reset(to)
	into := to.ProtoReflect()
	from.ProtoReflect().Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		into.Set(field, value)
		return true
	})
	return nil
}
