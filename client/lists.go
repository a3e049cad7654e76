package client

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
func (l *link) listInterceptor() grpc.UnaryClientInterceptor {
	return func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn,
		invoke grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		stream, ok := streamedLists[method]
		if !ok || status.Code(err) != codes.ResourceExhausted {
			return err
		}
		out, isProto := reply.(proto.Message)
		if !isProto {
			return err
		}
		serr := readPieces(ctx, cc, stream, req, out, opts)
		if status.Code(serr) == codes.Unimplemented {
			return err
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
