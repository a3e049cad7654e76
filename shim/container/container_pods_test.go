package container

import (
	"testing"

	"github.com/docker/docker/api/types/container"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/shim/state"
)

// trailers is the connection of a call, of which only the trailer is looked at.
type trailers struct {
	grpc.ServerTransportStream
	metadata.MD
}

func (s *trailers) SetTrailer(md metadata.MD) error {
	s.MD = metadata.Join(s.MD, md)
	return nil
}

// Who asks for the pods of a list gets those that containers know by their labels
// or their name, and nobody else gets anything.
func TestPodsBesideAList(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if _, err := f.CreateContainer(t.Context(), f.request(nil)); err != nil {
		t.Fatal(err)
	}
	add := func(name, sandbox string) {
		labels := map[string]string{state.LabelType: state.TypeContainer, state.LabelSandboxID: sandbox}
		if _, err := f.engine.ContainerCreate(t.Context(), &container.Config{Image: testImage, Labels: labels}, &container.HostConfig{}, nil, nil, name); err != nil {
			t.Fatal(err)
		}
	}
	add("k8s_db_back_stage_uid_0", "of another shim")
	add("renamed", "nobody knows")
	list := func(md metadata.MD) (*runtimeapi.ListContainersResponse, []string) {
		t.Helper()
		s := &trailers{}
		ctx := grpc.NewContextWithServerTransportStream(metadata.NewIncomingContext(t.Context(), md), s)
		r, err := f.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		return r, s.Get(api.TrailerPods)
	}
	plain, none := list(nil)
	for _, little := range []string{"1", "-1", "many"} {
		if _, told := list(metadata.Pairs(api.MetadataPods, little)); len(told) != 0 {
			t.Errorf("who wants %s bytes gets %q", little, told)
		}
	}
	asked, told := list(metadata.Pairs(api.MetadataPods, "1000"))
	if len(plain.GetContainers()) != 3 || len(none) != 0 || !proto.Equal(plain, asked) {
		t.Errorf("got %v with %v, and %v", plain, none, asked)
	}
	if len(told) != 1 {
		t.Fatalf("got trailers %q", told)
	}
	var pods runtimeapi.ListPodSandboxResponse
	if err := proto.Unmarshal([]byte(told[0]), &pods); err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range pods.GetItems() {
		got[p.GetId()] = p.GetMetadata().GetNamespace() + "/" + p.GetMetadata().GetName() + "/" + p.GetMetadata().GetUid()
	}
	if len(got) != 2 || got[f.sandbox] != "default/web/web-uid" || got["of another shim"] != "stage/back/uid" {
		t.Errorf("got %v", got)
	}
}
