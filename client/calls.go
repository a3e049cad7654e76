package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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

	"github.com/crishim/crishim/internal/api"
)

// callInterceptor limits each call, rewrites its error for users and logs the call to Debug. It never logs messages,
// because they may contain passwords.
func (c *criConn) callInterceptor(o *Options) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		lim := c.limitFor(ctx, o, method, req, opts)
		ctx, cancel := lim.on(ctx)
		defer cancel()
		start := time.Now()
		err := invoke(ctx, method, req, reply, cc, opts...)
		spent := time.Since(start)
		if err != nil {
			c.debugf(o, "%s on %s failed after %s: %v", method, c.endpoint, round(spent), err)
			return withSkipped(c.wordError(err, method, spent, lim), c.skipped)
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

// wordError rewrites the error of a call for users. Calls to the private service fail with ErrNotDockershim on other
// runtimes.
func (c *criConn) wordError(err error, method string, spent time.Duration, lim limit) error {
	if status.Code(err) == codes.Unimplemented && strings.HasPrefix(method, "/"+api.Crishim_ServiceDesc.ServiceName+"/") {
		return fmt.Errorf("%w, and %s is another runtime", ErrNotDockershim, c.endpoint)
	}
	return callError(err, operation(method), c.endpoint, spent, lim)
}

// withSkipped adds a hint about a runtime that was found but skipped, because the user may have meant that one.
func withSkipped(err error, skipped string) error {
	var e *Error
	if skipped != "" && errors.As(err, &e) && e.Code != codes.Canceled {
		e.skipped = skipped
	}
	return err
}

// streamInterceptor rewrites the errors of streams for users. Streams are long-lived, so only the Timeout option limits
// them.
func (c *criConn) streamInterceptor(o *Options) grpc.StreamClientInterceptor {
	return func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string,
		open grpc.Streamer, opts ...grpc.CallOption,
	) (grpc.ClientStream, error) {
		o.debugf("%s on %s opened", method, c.endpoint)
		lim := givenLimit(opts)
		ctx, cancel := lim.on(ctx)
		word := func(err error, spent time.Duration) error {
			if err != nil {
				cancel()
			}
			return withSkipped(c.wordError(err, method, spent, lim), c.skipped)
		}
		s, err := open(ctx, desc, cc, method, opts...)
		if err != nil {
			return nil, word(err, 0)
		}
		return &wordedStream{ClientStream: s, word: word, start: time.Now()}, nil
	}
}

type wordedStream struct {
	grpc.ClientStream
	word  func(err error, spent time.Duration) error
	start time.Time
}

func (s *wordedStream) RecvMsg(m any) error {
	return s.word(s.ClientStream.RecvMsg(m), time.Since(s.start))
}

// wireMethod returns the method name for the runtime's CRI version. v1 and v1alpha2 have the same wire format.
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

// Limits of calls by kind. A pull, an ExecSync, a checkpoint and a restore have no limit, because their duration depends
// on the user. Exec only returns a streaming URL and is a query.
const (
	QueryLimit  = 10 * time.Second // lists, status, stats, streaming URLs
	ChangeLimit = 2 * time.Minute  // create, start, remove, update: an engine is slow while it walks its disk
	PodLimit    = 4 * time.Minute  // sandboxes, which may wait for the network
)

// limit is the time that one call may take, and the flag that extends it.
type limit struct {
	d    time.Duration // 0: no limit
	flag string
}

func (l limit) hint() string {
	if l.flag == "" {
		return ""
	}
	return l.flag + " waits longer"
}

func (l limit) on(ctx context.Context) (context.Context, context.CancelFunc) {
	if l.d <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, l.d)
}

type callTimeout struct {
	grpc.EmptyCallOption
	limit
}

// Timeout returns a call option that sets the limit to d; 0 keeps the default limit. A timeout error names the flag.
func Timeout(d time.Duration, flag string) grpc.CallOption {
	return callTimeout{limit: limit{d: d, flag: flag}}
}

func givenLimit(opts []grpc.CallOption) (given limit) {
	for _, o := range opts {
		if t, ok := o.(callTimeout); ok && t.d > 0 {
			given = t.limit
		}
	}
	return given
}

// limitFor returns the limit of a call: from its options, else --timeout, else by kind of call. A stop's grace period
// is added to the last two, so that a long grace period does not time out.
func (c *criConn) limitFor(ctx context.Context, o *Options, method string, req any, opts []grpc.CallOption) limit {
	if given := givenLimit(opts); given.d > 0 {
		return given
	}
	if _, ok := ctx.Deadline(); ok && c.limit == 0 {
		return limit{} // the caller has set a deadline
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
	d = cmp.Or(max(o.Timeout, 0), c.limit, d)
	switch req.(type) {
	case *runtimeapi.StopContainerRequest, *api.RestartContainerRequest:
		grace := req.(interface{ GetTimeout() int64 }).GetTimeout()
		d += time.Duration(max(grace, 0)) * time.Second
	}
	return limit{d: d, flag: "--timeout"}
}

// streamedLists maps list calls to the streaming calls of newer runtimes. Their messages have the same wire format, so
// the unary messages are used for both. A test compares the descriptors.
var streamedLists = map[string]string{
	runtimeapi.RuntimeService_ListPodSandbox_FullMethodName:        runtimeapi.RuntimeService_StreamPodSandboxes_FullMethodName,
	runtimeapi.RuntimeService_ListContainers_FullMethodName:        runtimeapi.RuntimeService_StreamContainers_FullMethodName,
	runtimeapi.RuntimeService_ListContainerStats_FullMethodName:    runtimeapi.RuntimeService_StreamContainerStats_FullMethodName,
	runtimeapi.RuntimeService_ListPodSandboxStats_FullMethodName:   runtimeapi.RuntimeService_StreamPodSandboxStats_FullMethodName,
	runtimeapi.RuntimeService_ListPodSandboxMetrics_FullMethodName: runtimeapi.RuntimeService_StreamPodSandboxMetrics_FullMethodName,
	runtimeapi.ImageService_ListImages_FullMethodName:              runtimeapi.ImageService_StreamImages_FullMethodName,
}

// listInterceptor falls back to the streaming call if a list exceeds the message size. The unary call goes first,
// because every runtime has it and few nodes need the other.
func listInterceptor(o *Options) grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		stream, ok := streamedLists[method]
		if !ok || status.Code(err) != codes.ResourceExhausted || o.bounded() {
			return err
		}
		serr := readPieces(ctx, cc, stream, req, reply.(proto.Message), opts)
		var worded *Error
		switch {
		case status.Code(serr) == codes.Unimplemented:
			return err
		case errors.As(serr, &worded):
			return worded.err // not rewritten for the stream: callInterceptor rewrites it for the list call
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

// retryInterceptor repeats an idempotent call that containerd could not finish because its ttrpc connection to the
// container's shim was closed. The shim exits with its last process, often while it handles the request to kill that
// process. The container is then unchanged or gone.
func retryInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		idempotent := []string{"StopContainer", "StopPodSandbox", "RemoveContainer", "RemovePodSandbox"}
		err := invoke(ctx, method, req, reply, cc, opts...)
		for n := 1; n < 5 && err != nil && strings.Contains(err.Error(), "ttrpc: closed") && slices.Contains(idempotent, path.Base(method)); n++ {
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
				return err
			}
			err = invoke(ctx, method, req, reply, cc, opts...)
		}
		return err
	}
}
