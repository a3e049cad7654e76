package reliability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const root = "../.."

func rpcs() []string {
	var names []string
	for _, d := range []grpc.ServiceDesc{runtimeapi.RuntimeService_ServiceDesc, runtimeapi.ImageService_ServiceDesc} {
		for _, m := range d.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range d.Streams {
			names = append(names, s.StreamName)
		}
	}
	slices.Sort(names)
	return names
}

// unsupported lists the calls that the engine cannot support.
var unsupported = []string{"CheckpointContainer", "CheckpointPod", "RestorePod"}

// TestTheDocsNameEveryRPC checks that the table in docs/cri.md has each call, and that only the unsupported ones are
// marked as not implemented.
func TestTheDocsNameEveryRPC(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(root, "docs", "cri.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "\n## RPCs\n")
	table, _, _ = strings.Cut(table, "\n## ")
	var named, refused []string
	for _, row := range regexp.MustCompile(`(?m)^\| ([A-Z][A-Za-z, ]+) \| (.*) \|$`).FindAllStringSubmatch(table, -1) {
		if row[1] == "RPC" {
			continue
		}
		names := strings.Split(row[1], ", ")
		named = append(named, names...)
		if strings.HasPrefix(row[2], "`Unimplemented`: ") {
			refused = append(refused, names...)
		}
	}
	slices.Sort(named)
	if want := rpcs(); !slices.Equal(named, want) || len(want) != 43 {
		t.Errorf("the table has %v, want the %d calls %v", named, len(want), want)
	}
	if slices.Sort(refused); !slices.Equal(refused, unsupported) {
		t.Errorf("the table refuses %v, want %v", refused, unsupported)
	}
}

// dialAs connects to serve under a service name and records the results of calls.
func dialAs(t *testing.T, s *serve, name string) (*grpc.ClientConn, func() map[string]codes.Code) {
	t.Helper()
	var mu sync.Mutex
	seen := map[string]codes.Code{}
	note := func(method string, err error) {
		mu.Lock()
		defer mu.Unlock()
		seen[path.Base(method)] = status.Code(err)
	}
	wire := func(method string) string { return strings.Replace(method, "/runtime.v1.", "/"+name+".", 1) }
	conn, err := grpc.NewClient(s.endpoint(), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			err := invoke(ctx, wire(method), req, reply, cc, opts...)
			note(method, err)
			return err
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			stream, err := open(ctx, desc, cc, wire(method), opts...)
			note(method, err)
			return stream, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn, func() map[string]codes.Code {
		mu.Lock()
		defer mu.Unlock()
		return seen
	}
}

// all reads a streamed list and returns the ids in it.
func all[M any](t *testing.T, stream grpc.ServerStreamingClient[M], err error, ids func(*M) []string) []string {
	t.Helper()
	if err != nil {
		t.Error(err)
		return nil
	}
	var found []string
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Error(err)
			return nil
		}
		found = append(found, ids(m)...)
	}
}

func idsOf[T interface{ GetId() string }](items []T) []string {
	var ids []string
	for _, item := range items {
		ids = append(ids, item.GetId())
	}
	return ids
}

// TestEveryRPCOnEngine makes each CRI call under both service names during the life of a pod.
func TestEveryRPCOnEngine(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	s := startServe(t, h.endpoint())
	for _, name := range []string{"runtime.v1", "runtime.v1alpha2"} {
		t.Run(name, func(t *testing.T) {
			conn, seen := dialAs(t, s, name)
			r, images := runtimeapi.NewRuntimeServiceClient(conn), runtimeapi.NewImageServiceClient(conn)
			p := h.pod(t)
			everyRPC(t, p, r, images)
			for _, rpc := range rpcs() {
				code, called := seen()[rpc]
				want := codes.OK
				switch {
				case slices.Contains(unsupported, rpc):
					want = codes.Unimplemented
				case rpc == "PullImage":
					want = codes.Unavailable // the registry does not exist
				}
				if !called || code != want {
					t.Errorf("%s: called %t, ended with %s, want %s", rpc, called, code, want)
				}
			}
			wait(t, func() error { return p.left(t.Context()) })
		})
	}
	s.stop()
}

// everyRPC makes the calls and checks each response.
func everyRPC(t *testing.T, p *pod, r runtimeapi.RuntimeServiceClient, images runtimeapi.ImageServiceClient) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	// fine reports a failed call or an unexpected result.
	fine := func(what string, err error, is bool) {
		t.Helper()
		if err != nil || !is {
			t.Errorf("%s: %v, as expected %t", what, err, is)
		}
	}
	version, err := r.Version(ctx, &runtimeapi.VersionRequest{})
	fine("Version", err, version.GetRuntimeName() == "docker")
	state, err := r.Status(ctx, &runtimeapi.StatusRequest{})
	fine("Status", err, len(state.GetStatus().GetConditions()) == 2 && state.GetStatus().GetConditions()[0].GetStatus())
	_, err = r.RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	fine("RuntimeConfig", err, true)
	_, err = r.UpdateRuntimeConfig(ctx, &runtimeapi.UpdateRuntimeConfigRequest{})
	fine("UpdateRuntimeConfig", err, true)

	image, err := images.ImageStatus(ctx, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: testImage}})
	fine("ImageStatus", err, image.GetImage().GetId() != "")
	list, err := images.ListImages(ctx, &runtimeapi.ListImagesRequest{})
	fine("ListImages", err, slices.Contains(idsOf(list.GetImages()), image.GetImage().GetId()))
	fs, err := images.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{})
	fine("ImageFsInfo", err, len(fs.GetImageFilesystems()) == 1 && fs.GetImageFilesystems()[0].GetUsedBytes().GetValue() > 0)
	_, err = images.PullImage(ctx, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "127.0.0.1:1/none:1"}})
	fine("PullImage without a registry", nil, err != nil)
	_, err = images.RemoveImage(ctx, &runtimeapi.RemoveImageRequest{Image: &runtimeapi.ImageSpec{Image: "127.0.0.1:1/none:1"}})
	fine("RemoveImage", err, true)

	events, err := r.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.run(ctx, r); err != nil {
		t.Fatal(err)
	}
	heard := hear(events)
	probeEvents(t, ctx, p, r, heard)
	if err := errors.Join(p.create(ctx, r), p.start(ctx, r)); err != nil {
		t.Fatal(err)
	}
	boxes, err := r.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	fine("ListPodSandbox", err, slices.Contains(idsOf(boxes.GetItems()), p.id))
	box, err := r.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.id})
	fine("PodSandboxStatus", err, box.GetStatus().GetState() == runtimeapi.PodSandboxState_SANDBOX_READY && len(box.GetContainersStatuses()) == 1)
	_, err = r.UpdatePodSandboxResources(ctx, &runtimeapi.UpdatePodSandboxResourcesRequest{PodSandboxId: p.id})
	fine("UpdatePodSandboxResources", err, true)
	containers, err := r.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	fine("ListContainers", err, slices.Contains(idsOf(containers.GetContainers()), p.containerID))
	own, err := r.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: p.containerID})
	fine("ContainerStatus", err, own.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING)
	_, err = r.UpdateContainerResources(ctx, &runtimeapi.UpdateContainerResourcesRequest{
		ContainerId: p.containerID, Linux: &runtimeapi.LinuxContainerResources{CpuShares: 512},
	})
	fine("UpdateContainerResources", err, true)
	out, err := r.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: p.containerID, Cmd: []string{"echo", "x"}})
	fine("ExecSync", err, string(out.GetStdout()) == "x\n")
	exec, err := r.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: p.containerID, Cmd: []string{"true"}, Stdout: true})
	fine("Exec", err, strings.HasPrefix(exec.GetUrl(), "http://127.0.0.1:"))
	attach, err := r.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: p.containerID, Stdout: true})
	fine("Attach", err, strings.HasPrefix(attach.GetUrl(), "http://127.0.0.1:"))
	forward, err := r.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: p.id, Port: []int32{80}})
	fine("PortForward", err, strings.HasPrefix(forward.GetUrl(), "http://127.0.0.1:"))
	_, err = r.ReopenContainerLog(ctx, &runtimeapi.ReopenContainerLogRequest{ContainerId: p.containerID})
	fine("ReopenContainerLog", err, true)

	stats, err := r.ContainerStats(ctx, &runtimeapi.ContainerStatsRequest{ContainerId: p.containerID})
	fine("ContainerStats", err, stats.GetStats().GetMemory().GetUsageBytes().GetValue() > 0)
	allStats, err := r.ListContainerStats(ctx, &runtimeapi.ListContainerStatsRequest{})
	fine("ListContainerStats", err, len(allStats.GetStats()) > 0)
	podStats, err := r.PodSandboxStats(ctx, &runtimeapi.PodSandboxStatsRequest{PodSandboxId: p.id})
	fine("PodSandboxStats", err, podStats.GetStats().GetLinux().GetMemory().GetUsageBytes().GetValue() > 0)
	allPods, err := r.ListPodSandboxStats(ctx, &runtimeapi.ListPodSandboxStatsRequest{})
	fine("ListPodSandboxStats", err, len(allPods.GetStats()) > 0)
	described, err := r.ListMetricDescriptors(ctx, &runtimeapi.ListMetricDescriptorsRequest{})
	fine("ListMetricDescriptors", err, len(described.GetDescriptors()) > 50)
	metrics, err := r.ListPodSandboxMetrics(ctx, &runtimeapi.ListPodSandboxMetricsRequest{})
	fine("ListPodSandboxMetrics", err, len(metrics.GetPodMetrics()) > 0)

	streamedRPCs(t, ctx, p, r, images)

	_, err = r.CheckpointContainer(ctx, &runtimeapi.CheckpointContainerRequest{ContainerId: p.containerID})
	fine("CheckpointContainer says why", nil, err != nil && strings.Contains(err.Error(), "the docker engine cannot"))
	_, err = r.CheckpointPod(ctx, &runtimeapi.CheckpointPodRequest{})
	fine("CheckpointPod says why", nil, err != nil && strings.Contains(err.Error(), "the docker engine cannot"))
	_, err = r.RestorePod(ctx, &runtimeapi.RestorePodRequest{})
	fine("RestorePod says why", nil, err != nil && strings.Contains(err.Error(), "the docker engine cannot"))

	_, err = r.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: p.containerID, Timeout: 60})
	fine("StopContainer", err, true)
	if err := lifeOf(heard, p.containerID); err != nil {
		t.Errorf("GetContainerEvents: %v", err)
	}
	_, err = r.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: p.containerID})
	fine("RemoveContainer", err, true)
	fine("StopPodSandbox", p.stop(ctx, r), true)
	fine("RemovePodSandbox", p.remove(ctx, r), true)
}

func streamedRPCs(t *testing.T, ctx context.Context, p *pod, r runtimeapi.RuntimeServiceClient, images runtimeapi.ImageServiceClient) {
	t.Helper()
	pods, err := r.StreamPodSandboxes(ctx, &runtimeapi.StreamPodSandboxesRequest{})
	found := map[string][]string{}
	found["StreamPodSandboxes"] = all(t, pods, err, func(m *runtimeapi.StreamPodSandboxesResponse) []string { return idsOf(m.GetPodSandboxes()) })
	containers, err := r.StreamContainers(ctx, &runtimeapi.StreamContainersRequest{})
	found["StreamContainers"] = all(t, containers, err, func(m *runtimeapi.StreamContainersResponse) []string { return idsOf(m.GetContainers()) })
	containerStats, err := r.StreamContainerStats(ctx, &runtimeapi.StreamContainerStatsRequest{})
	found["StreamContainerStats"] = all(t, containerStats, err, func(m *runtimeapi.StreamContainerStatsResponse) (ids []string) {
		for _, s := range m.GetContainerStats() {
			ids = append(ids, s.GetAttributes().GetId())
		}
		return ids
	})
	podStats, err := r.StreamPodSandboxStats(ctx, &runtimeapi.StreamPodSandboxStatsRequest{})
	found["StreamPodSandboxStats"] = all(t, podStats, err, func(m *runtimeapi.StreamPodSandboxStatsResponse) (ids []string) {
		for _, s := range m.GetPodSandboxStats() {
			ids = append(ids, s.GetAttributes().GetId())
		}
		return ids
	})
	metrics, err := r.StreamPodSandboxMetrics(ctx, &runtimeapi.StreamPodSandboxMetricsRequest{})
	found["StreamPodSandboxMetrics"] = all(t, metrics, err, func(m *runtimeapi.StreamPodSandboxMetricsResponse) (ids []string) {
		for _, s := range m.GetPodSandboxMetrics() {
			ids = append(ids, s.GetPodSandboxId())
		}
		return ids
	})
	stored, err := images.StreamImages(ctx, &runtimeapi.StreamImagesRequest{})
	if got := all(t, stored, err, func(m *runtimeapi.StreamImagesResponse) []string { return idsOf(m.GetImages()) }); len(got) == 0 {
		t.Error("StreamImages: no image")
	}
	for rpc, ids := range found {
		want := p.id
		if strings.HasPrefix(rpc, "StreamContainer") {
			want = p.containerID
		}
		if n := len(slices.DeleteFunc(ids, func(id string) bool { return id != want })); n != 1 {
			t.Errorf("%s: %s is there %d times, want once", rpc, want, n)
		}
	}
}

func hear(stream grpc.ServerStreamingClient[runtimeapi.ContainerEventResponse]) <-chan *runtimeapi.ContainerEventResponse {
	heard := make(chan *runtimeapi.ContainerEventResponse, 1000)
	go func() {
		defer close(heard)
		for {
			e, err := stream.Recv()
			if err != nil {
				return
			}
			heard <- e
		}
	}()
	return heard
}

// probeEvents creates containers until one of them is reported, because nothing else tells when a subscription is
// active.
func probeEvents(t *testing.T, ctx context.Context, p *pod, r runtimeapi.RuntimeServiceClient, heard <-chan *runtimeapi.ContainerEventResponse) {
	t.Helper()
	for attempt := uint32(0); ctx.Err() == nil; attempt++ {
		config := p.container()
		config.Metadata, config.LogPath = &runtimeapi.ContainerMetadata{Name: "probe", Attempt: attempt}, ""
		made, err := r.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{PodSandboxId: p.id, Config: config, SandboxConfig: p.config})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: made.GetContainerId()}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-heard:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
	t.Fatal("the stream never told of a container")
}

// lifeOf waits for the events of a container that was created, started and stopped.
func lifeOf(heard <-chan *runtimeapi.ContainerEventResponse, id string) error {
	want := []runtimeapi.ContainerEventType{
		runtimeapi.ContainerEventType_CONTAINER_CREATED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STARTED_EVENT, runtimeapi.ContainerEventType_CONTAINER_STOPPED_EVENT,
	}
	for e := range heard {
		switch {
		case e.GetContainerId() != id:
		case e.GetContainerEventType() != want[0]:
			return fmt.Errorf("got %v, want %v", e.GetContainerEventType(), want[0])
		case len(want) == 1:
			return nil
		default:
			want = want[1:]
		}
	}
	return fmt.Errorf("the stream ended, still to come: %v", want)
}
