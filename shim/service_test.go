package shim

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"testing"

	"github.com/containerd/errdefs"
	dockercontainer "github.com/docker/docker/api/types/container"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/sandbox"
	"github.com/crishim/crishim/shim/state"
)

// manyPods lists more pods than fit into one message.
type manyPods struct{ *enginetest.Memory }

func (manyPods) ContainerList(_ context.Context, o dockercontainer.ListOptions) ([]dockercontainer.Summary, error) {
	if o.Filters.Contains("id") {
		return nil, nil
	}
	var list []dockercontainer.Summary
	for i := range 2*chunkSize + 1 {
		list = append(list, dockercontainer.Summary{ID: strconv.Itoa(i), Names: []string{"/k8s_POD_p_n_u_0"}, Labels: map[string]string{state.LabelType: state.TypeSandbox}})
	}
	return list, nil
}

func TestStreamedListHasEveryItemOnce(t *testing.T) {
	conn := serveService(t, slog.New(slog.DiscardHandler), &criService{sandboxService: sandbox.New(sandbox.Options{Engine: manyPods{}})})
	for filter, want := range map[string]int{"": 2*chunkSize + 1, "none": 0} {
		stream, err := runtimeapi.NewRuntimeServiceClient(conn).StreamPodSandboxes(t.Context(),
			&runtimeapi.StreamPodSandboxesRequest{Filter: &runtimeapi.PodSandboxFilter{Id: filter}})
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for {
			part, err := stream.Recv()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(part.GetPodSandboxes()) == 0 {
				t.Error("got an empty message")
			}
			for _, p := range part.GetPodSandboxes() {
				if seen[p.GetId()] {
					t.Errorf("got %s twice", p.GetId())
				}
				seen[p.GetId()] = true
			}
		}
		if len(seen) != want {
			t.Errorf("got %d pods, want %d", len(seen), want)
		}
	}
}

func TestStreamedListThatFails(t *testing.T) {
	engine := enginetest.NewMemory()
	engine.Fail("ImageList", func(context.Context) error { return errdefs.ErrUnavailable })
	conn := serveService(t, slog.New(slog.DiscardHandler), &criService{imageService: image.New(image.Options{Engine: engine})})
	stream, err := runtimeapi.NewImageServiceClient(conn).StreamImages(t.Context(), &runtimeapi.StreamImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("got %v, want Unavailable", err)
	}
}
