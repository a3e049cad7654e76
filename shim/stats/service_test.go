package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/enginetest"
	"github.com/crishim/crishim/shim/state"
)

// remoteEngine is an engine whose processes are not on this host. It is in
// trouble with one container.
type remoteEngine struct {
	*enginetest.Memory
	broken string
	stuck  string // the engine never comes to an end with its numbers
}

func (e *remoteEngine) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	if id == e.broken {
		return container.InspectResponse{}, errdefs.ErrInternal
	}
	return e.Memory.ContainerInspect(ctx, id)
}

func (e *remoteEngine) ContainerStatsOneShot(ctx context.Context, id string) (container.StatsResponseReader, error) {
	if id == e.stuck {
		<-ctx.Done()
		return container.StatsResponseReader{}, ctx.Err()
	}
	var a container.StatsResponse
	a.Read = when
	a.CPUStats.CPUUsage.TotalUsage = 5000
	a.MemoryStats.Usage = 1000
	b, err := json.Marshal(a)
	return container.StatsResponseReader{Body: io.NopCloser(bytes.NewReader(b))}, err
}

func (e *remoteEngine) run(t *testing.T, name string, labels map[string]string) string {
	t.Helper()
	made, err := e.ContainerCreate(t.Context(), &container.Config{Image: "i:v1", Labels: labels}, &container.HostConfig{}, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// TestRemoteEngine: the numbers come from the engine; one container that it cannot
// show is left out, and one that it is stuck with; and metrics say that they need the host.
func TestRemoteEngine(t *testing.T) {
	t.Parallel()
	e := &remoteEngine{Memory: enginetest.NewMemory()}
	e.AddImage("i:v1")
	pod := &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}
	labels, err := state.EncodeSandbox(state.Sandbox{Metadata: pod})
	if err != nil {
		t.Fatal(err)
	}
	sandbox := e.run(t, "sandbox", labels)
	member := func(name string) string {
		return e.run(t, name, state.EncodeContainer(state.Container{Metadata: &runtimeapi.ContainerMetadata{Name: name}, Pod: pod, SandboxID: sandbox}))
	}
	good := member("good")
	e.broken = member("broken")
	s := New(Options{Engine: e})
	defer s.Close()
	e.stuck = member("stuck")
	s.patience = 20 * time.Millisecond
	list, err := s.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil || len(list.GetStats()) != 1 || list.GetStats()[0].GetAttributes().GetId() != good {
		t.Fatalf("list: got %v, %v", list, err)
	}
	if got := list.GetStats()[0]; got.GetCpu().GetUsageCoreNanoSeconds().GetValue() != 5000 || got.GetMemory().GetWorkingSetBytes().GetValue() != 1000 {
		t.Errorf("got %v", got)
	}
	pods, err := s.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil || len(pods.GetStats()) != 1 || pods.GetStats()[0].GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue() != 10000 {
		t.Errorf("pods: got %v, %v; want the sum of sandbox and container", pods, err)
	}
	if _, err := s.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{}); !errdefs.IsNotImplemented(err) {
		t.Errorf("metrics: got %v, want not implemented", err)
	}
	if _, err := s.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: sandbox}); !errdefs.IsNotFound(err) {
		t.Errorf("a sandbox as a container: got %v", err)
	}
}
