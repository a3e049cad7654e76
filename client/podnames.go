package client

import (
	"context"
	"math"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
)

// trailerOver is the largest trailer that a connection is to carry. The pods of a
// node take a quarter of it.
const trailerOver = 64 << 10

// PodNames are what crishim's own shim can say of the pods of the containers that
// it lists, beside the list. Other runtimes say nothing.
type PodNames struct{ trailer metadata.MD }

// Ask prepares a list of containers whose pods are wanted too.
func (p *PodNames) Ask(ctx context.Context, c *Conn) (context.Context, grpc.CallOption) {
	most := trailerOver
	if c.Embedded {
		most = math.MaxInt32
	}
	return metadata.AppendToOutgoingContext(ctx, api.MetadataPods, strconv.Itoa(most)), grpc.Trailer(&p.trailer)
}

// For gives the names by the sandboxes' ids. It is false where a container's pod
// is not among them.
func (p *PodNames) For(containers []*runtimeapi.Container) (map[string]*runtimeapi.PodSandboxMetadata, bool) {
	values := p.trailer.Get(api.TrailerPods)
	var list runtimeapi.ListPodSandboxResponse
	if len(values) == 0 || proto.Unmarshal([]byte(values[0]), &list) != nil {
		return nil, false
	}
	names := make(map[string]*runtimeapi.PodSandboxMetadata, len(list.GetItems()))
	for _, pod := range list.GetItems() {
		names[pod.GetId()] = pod.GetMetadata()
	}
	for _, c := range containers {
		if names[c.GetPodSandboxId()] == nil {
			return nil, false
		}
	}
	return names, true
}
