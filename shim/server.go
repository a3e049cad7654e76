package shim

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
)

// maxMessage is the size that a kubelet allows in both directions.
const maxMessage = 16 << 20

const (
	packageV1       = "runtime.v1."
	packageV1Alpha2 = "runtime.v1alpha2."
)

func newServer(log *slog.Logger, a *criService) *grpc.Server {
	i := &interceptor{log: log}
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(i.unary),
		grpc.StreamInterceptor(i.stream),
	)
	register(s, a)
	for _, desc := range criServices() { // v1alpha2 has the same messages on the wire
		old := *desc
		old.ServiceName = packageV1Alpha2 + strings.TrimPrefix(desc.ServiceName, packageV1)
		s.RegisterService(&old, a)
	}
	return s
}

func criServices() []*grpc.ServiceDesc {
	return []*grpc.ServiceDesc{&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc}
}

// register makes the service answer both services of v1 and the private one.
func register(s grpc.ServiceRegistrar, a *criService) {
	for _, desc := range criServices() {
		s.RegisterService(desc, a)
	}
	if a.private != nil {
		api.RegisterCrishimServer(s, a.private)
	}
}

// interceptor does for every RPC what no service should have to: it turns panics
// and errors into status codes and logs how the call ended. Requests and
// answers are never logged, they carry credentials and environments.
type interceptor struct{ log *slog.Logger }

func (i *interceptor) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (resp any, err error) {
	finish := i.begin(ctx, info.FullMethod)
	defer func() { err = finish(err, recover()) }()
	return handle(reading(ctx, info.FullMethod), req)
}

func (i *interceptor) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, handle grpc.StreamHandler) (err error) {
	finish := i.begin(s.Context(), info.FullMethod)
	defer func() { err = finish(err, recover()) }()
	return handle(srv, readingStream{s, reading(s.Context(), info.FullMethod)})
}

// readingStream is a stream with a context that was prepared for it.
type readingStream struct {
	grpc.ServerStream
	ctx context.Context
}

func (s readingStream) Context() context.Context { return s.ctx }

// begin notes the start of a call and returns what ends it. The name on the wire
// comes from the context: the generated code only knows the v1 name.
func (i *interceptor) begin(ctx context.Context, method string) func(error, any) error {
	started := time.Now()
	if wire, ok := grpc.Method(ctx); ok {
		method = wire
	}
	return func(err error, panicked any) error {
		if panicked != nil {
			i.log.Error("a request panicked", "method", method, "panic", panicked, "stack", string(debug.Stack()))
			err = status.Error(codes.Internal, fmt.Sprintf("internal error: %v", panicked))
		}
		err = toStatus(ctx, err)
		i.report(ctx, method, err, time.Since(started))
		return err
	}
}

func (i *interceptor) report(ctx context.Context, method string, err error, took time.Duration) {
	if err == nil {
		i.log.DebugContext(ctx, "request done", "method", method, "took", took)
		return
	}
	level := slog.LevelWarn
	switch status.Code(err) {
	case codes.NotFound, codes.Unimplemented, codes.Canceled:
		level = slog.LevelInfo
	}
	i.log.Log(ctx, level, "request failed", "method", method, "took", took, "code", status.Code(err).String(), "err", err)
}
