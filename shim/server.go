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
	register(s, a)
	for _, desc := range criServices() {
		old := alpha(*desc)
		s.RegisterService(&old, a)
	}
	return s
}

func criServices() []*grpc.ServiceDesc {
	return []*grpc.ServiceDesc{&runtimeapi.RuntimeService_ServiceDesc, &runtimeapi.ImageService_ServiceDesc}
}

// register makes the areas answer both services of v1 and the private one.
func register(s grpc.ServiceRegistrar, a *areas) {
	for _, desc := range criServices() {
		s.RegisterService(desc, a)
	}
	if a.private != nil {
		api.RegisterCrishimServer(s, a.private)
	}
}

// alpha is a v1 service under the name of v1alpha2, whose messages are the same
// on the wire.
func alpha(desc grpc.ServiceDesc) grpc.ServiceDesc {
	desc.ServiceName = packageV1Alpha2 + strings.TrimPrefix(desc.ServiceName, packageV1)
	return desc
}
