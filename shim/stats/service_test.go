package stats

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/storage"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/state"
)

// remoteEngine is an engine whose processes are on another host. It fails for one container.
type remoteEngine struct {
	*enginetest.Memory
	broken string
	stuck  string // container whose stats request hangs
	passed atomic.Int64
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
	a.Read = when.Add(time.Duration(e.passed.Load()))
	a.CPUStats.CPUUsage.TotalUsage = 5000
	a.MemoryStats.Usage = 1000
	b, err := json.Marshal(a)
	return container.StatsResponseReader{Body: io.NopCloser(bytes.NewReader(b))}, err
}

func (e *remoteEngine) run(t *testing.T, name string, labels map[string]string) string {
	t.Helper()
	made, err := e.ContainerCreate(t.Context(), &container.Config{Image: "i:v1", Labels: labels}, &container.HostConfig{Resources: container.Resources{Memory: 4096}}, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

// TestRemoteEngine checks that stats come from the engine, that a failing and a hanging container are left out, and
// that metrics require a local engine.
func TestRemoteEngine(t *testing.T) {
	t.Parallel()
	e := &remoteEngine{Memory: enginetest.NewMemory()}
	e.AddImage("i:v1")
	pod := &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}
	labels, err := state.EncodeSandbox(state.Sandbox{Metadata: pod}, nil)
	if err != nil {
		t.Fatal(err)
	}
	sandbox := e.run(t, "k8s_POD_p_n_u_0", labels)
	member := func(name string) string {
		labels := state.EncodeContainer(state.Container{Metadata: &runtimeapi.ContainerMetadata{Name: name}, Pod: pod, SandboxID: sandbox}, map[string]string{"from-the-image": "yes"})
		labels["from-the-image"] = "yes"
		return e.run(t, "k8s_"+name, labels)
	}
	good := member("good")
	e.broken = member("broken")
	s := New(e, slog.New(slog.DiscardHandler))
	defer s.Close()
	e.stuck = member("stuck")
	s.timeout = 20 * time.Millisecond
	list, err := s.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{})
	if err != nil || len(list.GetStats()) != 1 || list.GetStats()[0].GetAttributes().GetId() != good {
		t.Fatalf("list: got %v, %v", list, err)
	}
	if got := list.GetStats()[0]; got.GetCpu().GetUsageCoreNanoSeconds().GetValue() != 5000 || got.GetMemory().GetWorkingSetBytes().GetValue() != 1000 ||
		got.GetMemory().GetAvailableBytes().GetValue() != 3096 {
		t.Errorf("got %v", got)
	}
	labelled, err := s.ListContainerStats(t.Context(), &runtimeapi.ListContainerStatsRequest{Filter: &runtimeapi.ContainerStatsFilter{LabelSelector: map[string]string{"from-the-image": "yes"}}})
	if err != nil || len(labelled.GetStats()) != 0 {
		t.Errorf("by a label of the image: got %v, %v", labelled, err)
	}
	pods, err := s.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{})
	if err != nil || len(pods.GetStats()) != 1 || pods.GetStats()[0].GetLinux().GetCpu().GetUsageCoreNanoSeconds().GetValue() != 10000 {
		t.Errorf("pods: got %v, %v; want the sum of sandbox and container", pods, err)
	}
	if _, err := s.ListPodSandboxMetrics(t.Context(), &runtimeapi.ListPodSandboxMetricsRequest{}); !errdefs.IsNotImplemented(err) {
		t.Errorf("metrics: got %v, want not implemented", err)
	}
	ended, err := s.inspect(t.Context(), sandbox)
	if err != nil {
		t.Fatal(err)
	}
	local := ended
	local.dirs = host.CgroupDirs{"": "/sys/fs/cgroup/local"}
	if err := s.onHost(t.Context(), []target{ended, local}); err != nil {
		t.Errorf("a sandbox that has ended before one of this host: got %v", err)
	}
	if _, err := s.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: sandbox}); !errdefs.IsNotFound(err) {
		t.Errorf("a sandbox as a container: got %v", err)
	}
}

// TestRatesOfOtherPods checks that a filtered list keeps the rates of other pods.
func TestRatesOfOtherPods(t *testing.T) {
	t.Parallel()
	e := &remoteEngine{Memory: enginetest.NewMemory()}
	e.AddImage("i:v1")
	var ids []string
	for _, name := range []string{"a", "b"} {
		labels, err := state.EncodeSandbox(state.Sandbox{Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "n", Uid: name}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, e.run(t, "k8s_POD_"+name, labels))
	}
	s := New(e, slog.New(slog.DiscardHandler))
	defer s.Close()
	list := func(f *runtimeapi.PodSandboxStatsFilter) []*runtimeapi.PodSandboxStats {
		t.Helper()
		r, err := s.ListPodSandboxStats(t.Context(), &runtimeapi.ListPodSandboxStatsRequest{Filter: f})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStats()
	}
	list(nil)
	list(&runtimeapi.PodSandboxStatsFilter{Id: ids[0]})
	e.passed.Add(int64(time.Second))
	for _, p := range list(nil) {
		if p.GetLinux().GetCpu().GetUsageNanoCores() == nil {
			t.Errorf("pod %s has no rate", p.GetAttributes().GetMetadata().GetName())
		}
	}
}

// sizeEngine is an engine that must be asked for the size of a container's layer.
type sizeEngine struct {
	*remoteEngine
	driver storage.DriverData
	asked  atomic.Int32
	hangs  atomic.Bool
}

func (e *sizeEngine) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	c, err := e.remoteEngine.ContainerInspect(ctx, id)
	if err == nil {
		c.GraphDriver = e.driver
	}
	return c, err
}

func (e *sizeEngine) ContainerInspectWithRaw(ctx context.Context, id string, size bool) (container.InspectResponse, []byte, error) {
	e.asked.Add(1)
	if e.hangs.Load() {
		<-ctx.Done()
		return container.InspectResponse{}, nil, ctx.Err()
	}
	c, err := e.ContainerInspect(ctx, id)
	if written := int64(7 << 20); size && err == nil {
		c.SizeRw = &written
	}
	return c, nil, err
}

// TestSizesOfTheEngine checks that such an engine is asked for sizes once a minute in the background.
func TestSizesOfTheEngine(t *testing.T) {
	t.Parallel()
	for _, driver := range []storage.DriverData{
		{Name: "overlayfs"}, // containerd's image store
		{Name: "fuse-overlayfs", Data: map[string]string{"UpperDir": t.TempDir()}},
	} {
		t.Run(driver.Name, func(t *testing.T) {
			t.Parallel()
			testSizes(t, driver)
		})
	}
}

func testSizes(t *testing.T, driver storage.DriverData) {
	t.Helper()
	e := &sizeEngine{remoteEngine: &remoteEngine{Memory: enginetest.NewMemory()}, driver: driver}
	e.AddImage("i:v1")
	pod := &runtimeapi.PodSandboxMetadata{Name: "p", Namespace: "n", Uid: "u"}
	member := func(name string) string {
		return e.run(t, "k8s_"+name, state.EncodeContainer(state.Container{Metadata: &runtimeapi.ContainerMetadata{Name: name}, Pod: pod, SandboxID: "s"}, nil))
	}
	s := New(e, slog.New(slog.DiscardHandler))
	defer s.Close()
	layer := func(id string) *runtimeapi.FilesystemUsage {
		r, err := s.ContainerStats(t.Context(), &runtimeapi.ContainerStatsRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetStats().GetWritableLayer()
	}
	id := member("c")
	for end := time.Now().Add(time.Minute); layer(id) == nil; {
		if time.Now().After(end) {
			t.Fatal("no writable layer after a minute")
		}
	}
	if l := layer(id); l.GetUsedBytes().GetValue() != 7<<20 || l.GetInodesUsed() != nil || e.asked.Load() != 1 {
		t.Errorf("got %v, and the engine was asked %d times", l, e.asked.Load())
	}
	e.hangs.Store(true)
	begun := time.Now()
	if l := layer(member("hangs")); l != nil || time.Since(begun) > 10*time.Second {
		t.Errorf("an engine that hangs: got %v after %s", l, time.Since(begun))
	}
}
