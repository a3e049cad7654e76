package shim

import (
	"log/slog"
	"strings"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
)

// maxMessage is the size that a kubelet allows in both directions.
const maxMessage = 16 << 20

const (
	packageV1       = "runtime.v1."
	packageV1Alpha2 = "runtime.v1alpha2."
)

func newServer(log *slog.Logger, a *areas) *grpc.Server {
	i := &interceptor{log: log}
	s := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.UnaryInterceptor(i.unary),
		grpc.StreamInterceptor(i.stream),
	)
	for _, desc := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		s.RegisterService(&desc, a)
		old := alpha(desc)
		s.RegisterService(&old, a)
	}
	if a.private != nil {
		api.RegisterCrishimServer(s, a.private)
	}
	return s
}

// alpha is a v1 service under the name of v1alpha2, whose messages are the same
// on the wire.
func alpha(desc grpc.ServiceDesc) grpc.ServiceDesc {
	desc.ServiceName = packageV1Alpha2 + strings.TrimPrefix(desc.ServiceName, packageV1)
	return desc
}
