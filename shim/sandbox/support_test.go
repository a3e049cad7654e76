package sandbox_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/sandbox"
)

// cleanup returns a context for t.Cleanup, in which t.Context has ended.
func cleanup(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func compare(t *testing.T, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Errorf("got + instead of -:\n%s", diff)
	}
}

func statusOf(t *testing.T, s *sandbox.Service, id string) *runtimeapi.PodSandboxStatus {
	t.Helper()
	resp, err := s.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetStatus()
}

func listBy(t *testing.T, s *sandbox.Service, f *runtimeapi.PodSandboxFilter) []*runtimeapi.PodSandbox {
	t.Helper()
	resp, err := s.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{Filter: f})
	if err != nil {
		t.Fatal(err)
	}
	return resp.GetItems()
}

// engineContainers stops and removes containers directly in the engine.
type engineContainers struct{ lifecycle.Engine }

func (e engineContainers) Kill(ctx context.Context, id string) error {
	return lifecycle.Stop(ctx, e, id, 0)
}

func (e engineContainers) Remove(ctx context.Context, id string) error {
	return lifecycle.Remove(ctx, e, id)
}
