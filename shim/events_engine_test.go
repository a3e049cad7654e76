package shim_test

import (
	"context"
	"crypto/rand"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim"
)

func TestEventsOfAPodOnEngine(t *testing.T) {
	t.Parallel()
	enginetest.Require(t)
	e, err := shim.StartEmbedded(t.Context(), shim.Options{Network: shim.NetworkOptions{Plugin: shim.PluginBridge}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	client := runtimeapi.NewRuntimeServiceClient(dial(t, e))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stream, err := client.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	// Nothing reports when the subscription is active, so pods are created until the first event arrives.
	seen := make(chan *runtimeapi.ContainerEventResponse, 1000)
	go func() {
		defer close(seen)
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			seen <- event
		}
	}()
	probe(t, ctx, client, seen)

	config := &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "told", Namespace: "shim-test", Uid: rand.Text()}}
	id := live(t, ctx, client, config)
	for _, want := range []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT,
		runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT, runtimeapi.ContainerEventType_CONTAINER_DELETED_EVENT,
	} {
		event := next(t, seen, id)
		if event.GetContainerEventType() != want || event.GetPodSandboxStatus().GetMetadata().GetUid() != config.GetMetadata().GetUid() {
			t.Errorf("got %v, want %s", event, want)
		}
	}
}

func live(t *testing.T, ctx context.Context, client runtimeapi.RuntimeServiceClient, config *runtimeapi.PodSandboxConfig) string {
	t.Helper()
	made, err := client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: made.GetPodSandboxId()}); err != nil {
		t.Error(err)
	}
	if _, err := client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: made.GetPodSandboxId()}); err != nil {
		t.Fatal(err)
	}
	return made.GetPodSandboxId()
}

// probe creates pods until the stream reports one.
func probe(t *testing.T, ctx context.Context, client runtimeapi.RuntimeServiceClient, seen <-chan *runtimeapi.ContainerEventResponse) {
	t.Helper()
	for ctx.Err() == nil {
		live(t, ctx, client, &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Name: "probe", Namespace: "shim-test", Uid: rand.Text()}})
		select {
		case <-seen:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatal("the stream never told of a pod")
}

func next(t *testing.T, seen <-chan *runtimeapi.ContainerEventResponse, id string) *runtimeapi.ContainerEventResponse {
	t.Helper()
	for event := range seen {
		if event.GetContainerId() == id {
			return event
		}
	}
	t.Fatal("the stream ended")
	return nil
}
