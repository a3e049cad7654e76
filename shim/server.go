package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/state"
)

// maxMessage is a kubelet's message limit in both directions.
const maxMessage = 16 << 20

type server struct {
	*grpc.Server
	abandoned chan struct{} // closed when stop no longer waits for requests
}

// newServer registers both CRI services as v1 and v1alpha2, which have the same wire format. dockershim's counterpart
// is NewDockerServer.
func newServer(log *slog.Logger, tracer trace.TracerProvider, cri *criService, private api.CrishimServer) *server {
	i := &interceptor{log: log, changed: cri.invalidateLists}
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(i.unary),
		grpc.StreamInterceptor(i.stream),
	}
	if tracer != nil { // the client's span, for example a kubelet's, is in the metadata
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithTracerProvider(tracer), otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
	s := grpc.NewServer(options...)
	for _, v1 := range []*grpc.ServiceDesc{&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc} {
		v1alpha2 := *v1
		v1alpha2.ServiceName = "runtime.v1alpha2." + strings.TrimPrefix(v1.ServiceName, "runtime.v1.")
		s.RegisterService(v1, cri)
		s.RegisterService(&v1alpha2, cri)
	}
	api.RegisterCrishimServer(s, private)
	return &server{Server: s, abandoned: make(chan struct{})}
}

// stop waits for running requests and then cancels them. Some requests continue after the cancellation, for example to
// remove a container that the engine has created anyway. After cutOff these requests are abandoned, because the engine may
// not answer at all.
func (s *server) stop(graceful, cutOff time.Duration) error {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.GracefulStop()
	}()
	select {
	case <-stopped:
		return nil
	case <-time.After(graceful):
	}
	go s.Stop()
	select {
	case <-stopped:
		return nil
	case <-time.After(cutOff):
	}
	close(s.abandoned)
	return errors.New("the engine has not answered all requests: they may still take effect")
}

// interceptor converts panics and errors to status codes and logs the end of calls. It never logs requests and
// responses, because they contain credentials.
type interceptor struct {
	log     *slog.Logger
	changed func() // invalidates cached lists; called after each request unless keepsLists
}

func (i *interceptor) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	defer func(started time.Time) { err = i.finish(ctx, started, err, recover()) }(time.Now())
	return handle(ctx, req)
}

func (i *interceptor) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	defer func(started time.Time) { err = i.finish(s.Context(), started, err, recover()) }(time.Now())
	return handle(srv, s)
}

// finish takes the method's name from the context, because the generated code passes the v1 name also for requests of v1alpha2.
func (i *interceptor) finish(ctx context.Context, started time.Time, err error, panicked any) error {
	method, _ := grpc.Method(ctx)
	if !keepsLists(path.Base(method)) {
		i.changed()
	}
	if panicked != nil {
		i.log.Error("a request panicked", "method", method, "panic", panicked, "stack", string(debug.Stack()))
		err = status.Error(codes.Internal, fmt.Sprintf("internal error: %v", panicked))
	}
	took := time.Since(started)
	if err == nil {
		i.log.DebugContext(ctx, "request done", "method", method, "took", took)
		return nil
	}
	err = toStatus(ctx, err)
	level := slog.LevelWarn
	switch status.Code(err) {
	case codes.NotFound, codes.Unimplemented, codes.Canceled:
		level = slog.LevelInfo
	}
	i.log.Log(ctx, level, "request failed", "method", method, "took", took, "code", status.Code(err).String(), "err", err)
	return err
}

// keepsLists reports whether a request leaves cached lists valid. ContainerStatus and PodSandboxStatus invalidate them,
// because a client must not get a list that is older than a status it has read.
func keepsLists(method string) bool {
	switch method {
	case "Version", "Status", "ImageStatus", "ImageFsInfo", "ContainerStats", "PodSandboxStats", "ExecSync", "Exec", "Attach", "PortForward":
		return true
	}
	return strings.HasPrefix(method, "List") || strings.HasPrefix(method, "Stream")
}

func toStatus(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	code := codes.Unknown
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(ctx.Err(), context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled), errors.Is(ctx.Err(), context.Canceled):
		code = codes.Canceled
	case docker.IsUnreachable(err):
		code = codes.Unavailable
	default:
		for _, c := range errorCodes {
			if c.is(err) {
				code = c.code
				break
			}
		}
	}
	s := status.New(code, docker.Text(err))
	if errors.Is(err, state.ErrNoPod) {
		if detailed, err := s.WithDetails(wrapperspb.String(api.DetailNoPod)); err == nil {
			s = detailed
		}
	}
	return s.Err()
}

var errorCodes = []struct {
	is   func(error) bool
	code codes.Code
}{
	{errdefs.IsNotFound, codes.NotFound},
	{errdefs.IsInvalidArgument, codes.InvalidArgument},
	{errdefs.IsAlreadyExists, codes.AlreadyExists},
	{errdefs.IsFailedPrecondition, codes.FailedPrecondition},
	{errdefs.IsConflict, codes.FailedPrecondition},
	{errdefs.IsPermissionDenied, codes.PermissionDenied},
	{errdefs.IsUnauthorized, codes.Unauthenticated},
	{errdefs.IsResourceExhausted, codes.ResourceExhausted},
	{errdefs.IsNotImplemented, codes.Unimplemented},
	{errdefs.IsUnavailable, codes.Unavailable},
	{errdefs.IsAborted, codes.Aborted},
	{errdefs.IsOutOfRange, codes.OutOfRange},
	{errdefs.IsDataLoss, codes.DataLoss},
	{errdefs.IsInternal, codes.Internal},
}
