package shim

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// manyPods lists more pods than fit into one message.
type manyPods struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
}

func (manyPods) ListPodSandbox(_ context.Context, r *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	if r.GetFilter().GetId() != "" {
		return &runtimeapi.ListPodSandboxResponse{}, nil
	}
	resp := &runtimeapi.ListPodSandboxResponse{}
	for i := range 2*chunk + 1 {
		resp.Items = append(resp.Items, &runtimeapi.PodSandbox{Id: strconv.Itoa(i)})
	}
	return resp, nil
}

func TestStreamedListHasEveryItemOnce(t *testing.T) {
	conn := serveService(t, slog.New(slog.DiscardHandler), &criService{lists: manyPods{}})
	for filter, want := range map[string]int{"": 2*chunk + 1, "none": 0} {
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

func TestStreamedListOfWhatIsNotBuilt(t *testing.T) {
	conn := serveService(t, slog.New(slog.DiscardHandler), &criService{lists: manyPods{}})
	stream, err := runtimeapi.NewImageServiceClient(conn).StreamImages(t.Context(), &runtimeapi.StreamImagesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}
