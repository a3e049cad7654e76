package shim

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// directRuntime answers ContainerStatus with a function, all else not at all.
type directRuntime struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	answer func(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error)
}

func (r directRuntime) ContainerStatus(ctx context.Context, q *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return r.answer(ctx, q)
}

// onlyUnary is a connection without streams.
type onlyUnary struct {
	*direct
	grpc.ClientConnInterface
}

func (o onlyUnary) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return o.direct.Invoke(ctx, method, args, reply, opts...)
}

func directClient(r directRuntime) (*direct, runtimeapi.RuntimeServiceClient) {
	d := newDirect((&interceptor{log: slog.New(slog.DiscardHandler)}).unary)
	runtimeapi.RegisterRuntimeServiceServer(d, r)
	return d, runtimeapi.NewRuntimeServiceClient(onlyUnary{direct: d})
}

// The answer is what was said, beside it what was set; the request stays the
// caller's own.
func TestDirectCall(t *testing.T) {
	t.Parallel()
	var got *runtimeapi.ContainerStatusRequest
	want := &runtimeapi.ContainerStatusResponse{
		Status: &runtimeapi.ContainerStatus{Id: "c", Labels: map[string]string{"a": "b"}, Mounts: []*runtimeapi.Mount{{HostPath: "/x"}}},
		Info:   map[string]string{"k": "v"},
	}
	_, client := directClient(directRuntime{answer: func(ctx context.Context, q *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
		got = proto.CloneOf(q)
		q.ContainerId = "changed"
		if method, ok := grpc.Method(ctx); !ok || method != runtimeapi.RuntimeService_ContainerStatus_FullMethodName {
			t.Errorf("the handler sees method %q", method)
		}
		return proto.CloneOf(want), errors.Join(grpc.SetHeader(ctx, metadata.Pairs("h", "1")), grpc.SetTrailer(ctx, metadata.Pairs("t", "2")))
	}})
	request := &runtimeapi.ContainerStatusRequest{ContainerId: "c", Verbose: true}
	var header, trailer metadata.MD
	answer, err := client.ContainerStatus(t.Context(), request, grpc.Header(&header), grpc.Trailer(&trailer), grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if !proto.Equal(answer, want) {
		t.Errorf("got %v, want %v", answer, want)
	}
	if !proto.Equal(got, request) || request.GetContainerId() != "c" {
		t.Errorf("the handler got %v of %v", got, request)
	}
	if len(header.Get("h")) != 1 || len(trailer.Get("t")) != 1 {
		t.Errorf("got header %v and trailer %v", header, trailer)
	}
}

// Errors are what a connection would have told: a code and a sentence.
func TestDirectErrors(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		answer func() (*runtimeapi.ContainerStatusResponse, error)
		code   codes.Code
		text   string
	}{
		"a class of error": {func() (*runtimeapi.ContainerStatusResponse, error) {
			return nil, errors.Join(errdefs.ErrNotFound)
		}, codes.NotFound, "not found"},
		"a status": {func() (*runtimeapi.ContainerStatusResponse, error) {
			return nil, status.Error(codes.OutOfRange, "far")
		}, codes.OutOfRange, "far"},
		"a panic":             {func() (*runtimeapi.ContainerStatusResponse, error) { panic("ouch") }, codes.Internal, "internal error: ouch"},
		"an answer of nobody": {func() (*runtimeapi.ContainerStatusResponse, error) { return nil, nil }, codes.OK, ""},
	} {
		_, client := directClient(directRuntime{answer: func(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
			return tt.answer()
		}})
		_, err := client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{})
		if status.Code(err) != tt.code || status.Convert(err).Message() != tt.text {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, client := directClient(directRuntime{answer: func(context.Context, *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
		t.Error("text that is not UTF-8 has come through")
		return nil, nil
	}})
	_, err := client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "\xff"})
	if status.Code(err) != codes.Internal || status.Convert(err).Message() != "grpc: error while marshaling: string field contains invalid UTF-8" {
		t.Errorf("not UTF-8: got %v", err)
	}
	d, _ := directClient(directRuntime{})
	for method, text := range map[string]string{
		"/runtime.v1.RuntimeService/Nothing": "unknown method Nothing for service runtime.v1.RuntimeService",
		"/crishim.v1.Crishim/Exec":           "unknown service crishim.v1.Crishim",
		"nonsense":                           "unknown service nonsense",
	} {
		err := d.Invoke(t.Context(), method, &runtimeapi.VersionRequest{}, &runtimeapi.VersionResponse{})
		if status.Code(err) != codes.Unimplemented || status.Convert(err).Message() != text {
			t.Errorf("%s: got %v", method, err)
		}
	}
}

// A caller does not wait for a handler that does not hear of the end of its
// context; the end of the shim does, for a while.
func TestDirectCallEndsWithItsContext(t *testing.T) {
	t.Parallel()
	reached, leave := make(chan context.Context, 1), make(chan struct{})
	d, client := directClient(directRuntime{answer: func(ctx context.Context, _ *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
		reached <- ctx
		<-leave
		return nil, ctx.Err()
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-reached; cancel() }()
	if _, err := client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{}); status.Code(err) != codes.Canceled {
		t.Errorf("got %v", err)
	}
	late, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := client.ContainerStatus(late, &runtimeapi.ContainerStatusRequest{}); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
	<-reached
	ended := make(chan error, 1)
	go func() {
		_, err := client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{})
		ended <- err
	}()
	handler := <-reached
	d.stop(time.Millisecond)
	if err := <-ended; status.Code(err) != codes.Unavailable {
		t.Errorf("when the shim ends: got %v", err)
	}
	<-handler.Done()
	close(leave)
	d.stop(time.Hour)
	if _, err := client.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{}); status.Code(err) != codes.Unavailable {
		t.Errorf("after the end: got %v", err)
	}
}
