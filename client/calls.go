package client

import (
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
)

// callInterceptor limits each call, words its error and logs it to Debug, but
// never a message: they hold passwords.
func (c *criConn) callInterceptor(o *Options) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		lim := o.limitFor(ctx, method, req)
		if lim.d > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, lim.d)
			defer cancel()
		}
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		spent := time.Since(start)
		if err != nil {
			c.debugf(o, "%s on %s failed after %s: %v", method, c.endpoint, round(spent), err)
			return withSkipped(callError(err, operation(method), c.endpoint, spent, lim), c.skipped)
		}
		c.debugf(o, "%s on %s took %s", method, c.endpoint, round(spent))
		return nil
	}
}

func (c *criConn) debugf(o *Options, format string, args ...any) {
	if !c.probing {
		o.debugf(format, args...)
	}
}

// withSkipped adds the runtime that was found but not taken to the hint of an
// error that may come from having taken the wrong one.
func withSkipped(err error, skipped string) error {
	var e *Error
	if skipped != "" && errors.As(err, &e) && e.Code != codes.Canceled {
		e.skipped = skipped
	}
	return err
}

// streamInterceptor words the errors of streams. They have no limit of their
// own: watching is meant to last.
func (c *criConn) streamInterceptor(o *Options) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		o.debugf("%s on %s opened", method, c.endpoint)
		s, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, callError(err, operation(method), c.endpoint, 0, limit{})
		}
		return &errorStream{ClientStream: s, op: operation(method), endpoint: c.endpoint, start: time.Now()}, nil
	}
}

type errorStream struct {
	grpc.ClientStream
	op, endpoint string
	start        time.Time
}

func (s *errorStream) RecvMsg(m any) error {
	return callError(s.ClientStream.RecvMsg(m), s.op, s.endpoint, time.Since(s.start), limit{})
}

// wireMethod returns the name under which the runtime knows a method. The
// messages of v1alpha2 are the same on the wire.
func (c *criConn) wireMethod(method string) string {
	if c.api == apiV1alpha2 {
		return strings.Replace(method, "/runtime.v1.", "/runtime.v1alpha2.", 1)
	}
	return method
}

func (c *criConn) versionUnary() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		return invoke(ctx, c.wireMethod(method), req, reply, cc, opts...)
	}
}

func (c *criConn) versionStream() grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		return open(ctx, desc, cc, c.wireMethod(method), opts...)
	}
}

// Limits of calls by kind, used where no other is given. A pull, an exec and
// a checkpoint have none: how long they take depends on the user.
const (
	QueryLimit  = 10 * time.Second // lists, status, stats, streaming URLs
	ChangeLimit = 2 * time.Minute  // create, start, remove, update; an engine that walks its disk
	PodLimit    = 4 * time.Minute  // pods, which may wait for the network
)

// limit is how long one call may take and what raises that.
type limit struct {
	d    time.Duration // 0 means no limit
	flag string
}

func (l limit) hint() string {
	if l.flag == "" {
		return ""
	}
	return l.flag + " waits longer"
}

type limitKey struct{}

// WithTimeout limits the calls made with the context it returns to d, or
// lifts their limit when d is zero or less. The flag is named in the error.
func WithTimeout(ctx context.Context, d time.Duration, flag string) context.Context {
	return context.WithValue(ctx, limitKey{}, limit{d: d, flag: flag})
}

// limitFor returns how long a call may take. What the caller put in the context goes
// first, then --timeout, then the limit of the kind of call; to the last two a stop adds
// its grace period, else a long one could never end well.
func (o *Options) limitFor(ctx context.Context, method string, req any) limit {
	if l, ok := ctx.Value(limitKey{}).(limit); ok {
		return l
	}
	if _, ok := ctx.Deadline(); ok {
		return limit{} // the caller's own
	}
	var d time.Duration
	switch path.Base(method) {
	case "PullImage", "ExecSync", "CheckpointContainer", "CheckpointPod", "RestorePod":
		return limit{}
	case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox":
		d = PodLimit
	case "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "UpdateContainerResources",
		"UpdatePodSandboxResources", "RemoveImage", "SignalContainer", "PauseContainer", "RestartContainer", "CopyContainer",
		"ImageUsage":
		d = ChangeLimit
	default:
		d = cmp.Or(max(o.QueryTimeout, 0), QueryLimit)
	}
	d = cmp.Or(max(o.Timeout, 0), d)
	switch req.(type) {
	case *runtimeapi.StopContainerRequest, *api.RestartContainerRequest:
		grace := req.(interface{ GetTimeout() int64 }).GetTimeout()
		d += time.Duration(max(grace, 0)) * time.Second
	}
	return limit{d: d, flag: "--timeout"}
}

// streamedLists are the list calls that newer runtimes also offer in pieces.
// A piece has the layout of the whole answer, and so has the request, so the
// unary messages serve for both; a test compares their descriptors.
var streamedLists = map[string]string{
	runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:        runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName,
	runtimeapi.RuntimeService_ListContainers_FullMethodName:        runtimeapi.RuntimeService_StreamContainers_FullMethodName,
	runtimeapi.RuntimeService_ListContainerStats_FullMethodName:    runtimeapi.RuntimeService_StreamContainerStats_FullMethodName,
	runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName:   runtimeapi.RuntimeService_StreamPodSandboxStats_FullMethodName,
	runtimeapi.RuntimeService_ListPodSandboxMetrics_FullMethodName: runtimeapi.RuntimeService_StreamPodSandboxMetrics_FullMethodName,
	runtimeapi.ImageService_ListImages_FullMethodName:              runtimeapi.ImageService_StreamImages_FullMethodName,
}

// listInterceptor asks for a list in pieces when it is too big for one
// message. The whole list is asked for first, because every runtime has that
// call and few nodes need the other; where the pieces are not implemented
// the first error stands.
func listInterceptor(o *Options) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		stream, ok := streamedLists[method]
		if !ok || status.Code(err) != codes.ResourceExhausted || o.bounded() {
			return err
		}
		out, isProto := reply.(proto.Message)
		if !isProto {
			return err
		}
		serr := readPieces(ctx, cc, stream, req, out, opts)
		var worded *Error
		switch {
		case status.Code(serr) == codes.Unimplemented:
			return err
		case errors.As(serr, &worded):
			return cmp.Or(worded.err, serr) // the error is that of the list, and of its limit
		}
		return serr
	}
}

func readPieces(ctx context.Context, cc *grpc.ClientConn, method string, req any, out proto.Message, opts []grpc.CallOption) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, method, opts...)
	if err != nil {
		return err
	}
	if err := s.SendMsg(req); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if err := s.CloseSend(); err != nil {
		return err
	}
	proto.Reset(out)
	for {
		piece := out.ProtoReflect().New().Interface()
		err := s.RecvMsg(piece)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		proto.Merge(out, piece)
	}
}

const (
	retryPause = 100 * time.Millisecond
	retryLimit = 5
)

// retryInterceptor repeats an idempotent call that containerd could not finish because
// its ttrpc connection to the container's shim was closed. The shim exits with its last
// process, often while it handles the request to kill it. The container is as it was, or gone.
func retryInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		idempotent := []string{"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"}
		err := invoke(ctx, method, req, reply, cc, opts...)
		for n := 1; n < retryLimit && err != nil && strings.Contains(err.Error(), "ttrpc: closed") && slices.Contains(idempotent, path.Base(method)); n++ {
			select {
			case <-time.After(retryPause):
			case <-ctx.Done():
				return err
			}
			err = invoke(ctx, method, req, reply, cc, opts...)
		}
		return err
	}
}
