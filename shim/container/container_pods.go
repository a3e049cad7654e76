package container

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/shim/state"
)

// podsBeside collects the pods of a list's containers, for a client that asks
// for them. A nil one collects nothing.
type podsBeside map[string]*runtimeapi.PodSandboxMetadata

func wantedPods(ctx context.Context) podsBeside {
	if len(metadata.ValueFromIncomingContext(ctx, api.MetadataPods)) == 0 {
		return nil
	}
	return podsBeside{}
}

// add notes a container's pod where its labels or its name say all of it.
func (p podsBeside) add(c state.Container) {
	if p != nil && c.SandboxID != "" && c.Pod.GetName() != "" && c.Pod.GetNamespace() != "" {
		p[c.SandboxID] = c.Pod
	}
}

// tell puts what was collected beside the answer.
func (p podsBeside) tell(ctx context.Context) error {
	if p == nil {
		return nil
	}
	list := &runtimeapi.ListPodSandboxResponse{}
	for id, m := range p {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: id, Metadata: m})
	}
	raw, err := proto.Marshal(list)
	if err == nil {
		err = grpc.SetTrailer(ctx, metadata.Pairs(api.TrailerPods, string(raw)))
	}
	if err != nil {
		return fmt.Errorf("list the pods of containers: %w", err)
	}
	return nil
}
