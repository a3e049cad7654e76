package client_test

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
)

func TestPodNamesBesideAList(t *testing.T) {
	t.Parallel()
	raw, err := proto.Marshal(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: "p", Metadata: &runtimeapi.PodSandboxMetadata{Name: "web"}}}})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		trailer metadata.MD
		pods    []string
		told    bool
	}{
		"all":               {metadata.Pairs(api.TrailerPods, string(raw)), []string{"p", "p"}, true},
		"one is missing":    {metadata.Pairs(api.TrailerPods, string(raw)), []string{"p", "q"}, false},
		"another runtime":   {nil, []string{"p"}, false},
		"not understood":    {metadata.Pairs(api.TrailerPods, "\xff"), []string{"p"}, false},
		"nothing to be had": {metadata.Pairs(api.TrailerPods, ""), nil, true},
	} {
		var p client.PodNames
		ctx, option := p.Ask(t.Context(), &client.Conn{})
		if md, _ := metadata.FromOutgoingContext(ctx); !slices.Equal(md.Get(api.MetadataPods), []string{"65536"}) {
			t.Errorf("%s: asked with %v", name, md)
		}
		*option.(grpc.TrailerCallOption).TrailerAddr = tt.trailer
		var containers []*runtimeapi.Container
		for _, pod := range tt.pods {
			containers = append(containers, &runtimeapi.Container{PodSandboxId: pod})
		}
		names, told := p.For(containers)
		if told != tt.told || told && len(tt.pods) > 0 && names["p"].GetName() != "web" {
			t.Errorf("%s: got %v, %t", name, names, told)
		}
	}
}
