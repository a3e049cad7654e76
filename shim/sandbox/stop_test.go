package sandbox_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/state"
)

func member(t *testing.T, engine *enginetest.Memory, sandboxID, name string) string {
	t.Helper()
	labels := state.EncodeContainer(state.Container{SandboxID: sandboxID, Metadata: &runtimeapi.ContainerMetadata{Name: name}}, nil)
	c, err := engine.ContainerCreate(t.Context(), &container.Config{Image: engine.AddImage("app"), Labels: labels}, &container.HostConfig{}, nil, nil, "k8s_"+name)
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.ContainerStart(t.Context(), c.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return c.ID
}

func isRunning(t *testing.T, engine *enginetest.Memory, id string) bool {
	t.Helper()
	c, err := engine.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c.State.Running
}

func TestStopEndsTheContainersFirst(t *testing.T) {
	s, engine, plugin := inMemory()
	id := run(t, s, uniqueConfig())
	app := member(t, engine, id, "app")
	stranger := member(t, engine, "another", "stranger")
	if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if isRunning(t, engine, app) || isRunning(t, engine, id) {
		t.Error("something of the pod still runs")
	}
	if !isRunning(t, engine, stranger) {
		t.Error("another pod's container was stopped")
	}
	if !slices.Contains(plugin.calls, "down box") {
		t.Errorf("got %v, want the network torn down", plugin.calls)
	}
}

func TestStopGoesOnAndTriesAgain(t *testing.T) {
	s, engine, plugin := inMemory()
	id := run(t, s, uniqueConfig())
	plugin.tearDown = errors.New("no plugin")
	if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); !errors.Is(err, plugin.tearDown) {
		t.Errorf("got %v, want the plugin's failure", err)
	}
	if isRunning(t, engine, id) {
		t.Error("the sandbox still runs")
	}
	if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); !errors.Is(err, plugin.tearDown) {
		t.Errorf("got %v, want the sandbox kept", err)
	}
	plugin.tearDown = nil
	if _, err := s.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Error(err)
	}
}

func TestRemoveTakesTheContainersAlong(t *testing.T) {
	s, engine, plugin := inMemory()
	id := run(t, s, uniqueConfig())
	member(t, engine, id, "app")
	if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Fatal(err)
	}
	if left := engine.Containers(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	if !slices.Contains(plugin.calls, "down box") {
		t.Error("the network of the running sandbox was not torn down")
	}
}

func TestRemoveTakesOrphansAlong(t *testing.T) {
	s, engine, _ := inMemory()
	member(t, engine, "gone", "app")
	if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: "gone"}); err != nil {
		t.Fatal(err)
	}
	if left := engine.Containers(); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A concurrent removal counts if it succeeds. If it fails, the pod still exists, and the call must fail.
func TestRemoveWaitsForAnothersRemoval(t *testing.T) {
	s, engine, _ := inMemory()
	id := run(t, s, uniqueConfig())
	inProgress := errors.Join(errors.New("removal of container is already in progress"), errdefs.ErrConflict)
	engine.Fail("ContainerRemove", func(context.Context) error { return inProgress })
	request := &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}
	if _, err := s.RemovePodSandbox(t.Context(), request); !errors.Is(err, inProgress) {
		t.Errorf("the other gave up: got %v, want the engine's word", err)
	}
	engine.Fail("ContainerRemove", func(ctx context.Context) error {
		engine.Fail("ContainerRemove", nil)
		return errors.Join(engine.ContainerRemove(ctx, id, container.RemoveOptions{Force: true}), inProgress)
	})
	if _, err := s.RemovePodSandbox(t.Context(), request); err != nil {
		t.Errorf("the other removed it: got %v", err)
	}
}

func TestAContainerIsNoSandbox(t *testing.T) {
	s, engine, _ := inMemory()
	id := member(t, engine, "another", "app")
	if _, err := s.PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id}); !errdefs.IsNotFound(err) {
		t.Errorf("got %v, want not found", err)
	}
	if _, err := s.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: id}); err != nil {
		t.Errorf("got %v, want nothing to do", err)
	}
	if !isRunning(t, engine, id) {
		t.Error("the container was touched")
	}
}
