package container

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/shim/state"
)

// podsBeside collects the pods of a list's containers, for a client that asks
// for them. A nil one collects nothing.
type podsBeside struct {
	most  int // bytes that the client wants to have of it
	found map[string]*runtimeapi.PodSandboxMetadata
}

func wantedPods(ctx context.Context) *podsBeside {
	asked := metadata.ValueFromIncomingContext(ctx, api.MetadataPods)
	if len(asked) == 0 {
		return nil
	}
	most, err := strconv.Atoi(asked[0])
	if err != nil {
		return nil
	}
	return &podsBeside{most: most, found: map[string]*runtimeapi.PodSandboxMetadata{}}
}

// add notes a container's pod where its labels or its name say all of it.
func (p *podsBeside) add(c state.Container) {
	if p != nil && c.SandboxID != "" && c.Pod.GetName() != "" && c.Pod.GetNamespace() != "" {
		p.found[c.SandboxID] = c.Pod
	}
}

// tell puts what was collected beside the answer, unless it is too much.
func (p *podsBeside) tell(ctx context.Context) error {
	if p == nil {
		return nil
	}
	list := &runtimeapi.ListPodSandboxResponse{}
	for id, m := range p.found {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: id, Metadata: m})
	}
	raw, err := proto.Marshal(list)
	if err == nil && len(raw) <= p.most {
		err = grpc.SetTrailer(ctx, metadata.Pairs(api.TrailerPods, string(raw)))
	}
	if err != nil {
		return fmt.Errorf("list the pods of containers: %w", err)
	}
	return nil
}
