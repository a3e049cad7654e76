package kuberuntime

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/logfile"
)

// TestInterfaces calls the methods of the interfaces as a user of the library does.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	id := f.status(t, p).Container("a").ID
	var runtime KubeGenericRuntime = f.Manager
	if got := runtime.Type(); got != "stubcri" {
		t.Errorf("type: got %q", got)
	}
	if got, err := runtime.Version(ctx); got != "1.0.0" || err != nil {
		t.Errorf("version: got %q, %v", got, err)
	}
	if got, err := runtime.Status(ctx); len(got.GetConditions()) != 2 || err != nil {
		t.Errorf("status: got %v, %v", got, err)
	}
	if err := runtime.UpdatePodCIDR(ctx, "10.9.0.0/16"); err != nil || f.stub.PodCIDR() != "10.9.0.0/16" {
		t.Errorf("pod CIDR: got %q, %v", f.stub.PodCIDR(), err)
	}
	f.stub.Log(id, "stdout", "hello")
	var out strings.Builder
	if err := runtime.GetContainerLogs(ctx, id, logfile.Options{Tail: -1}, &out, &out); err != nil || !strings.Contains(out.String(), "hello") {
		t.Errorf("logs: got %q, %v", out.String(), err)
	}
	ref, err := runtime.PullImage(ctx, "app:1", nil, nil)
	if err != nil || ref == "" {
		t.Fatalf("pull: got %q, %v", ref, err)
	}
	if got, err := runtime.GetImageRef(ctx, "app:1"); got == "" || err != nil {
		t.Errorf("image ref: got %q, %v", got, err)
	}
	if got, err := runtime.ImageStats(ctx); got == 0 || err != nil {
		t.Errorf("image stats: got %d, %v", got, err)
	}
	if err := runtime.RemoveImage(ctx, "app:1"); err != nil {
		t.Errorf("remove the image: %v", err)
	}
	if got, err := runtime.GetImageRef(ctx, "app:1"); got != "" || err != nil {
		t.Errorf("image ref after its removal: got %q, %v", got, err)
	}

	for name, get := range map[string]func() (string, error){
		"exec":         func() (string, error) { return runtime.GetExec(ctx, id, []string{"sh"}, true, true, false, true) },
		"attach":       func() (string, error) { return runtime.GetAttach(ctx, id, false, true, true, false) },
		"port-forward": func() (string, error) { return runtime.GetPortForward(ctx, f.status(t, p).Sandbox().GetId(), nil) },
	} {
		if url, err := get(); !strings.Contains(url, "://") || err != nil {
			t.Errorf("%s: got %q, %v", name, url, err)
		}
	}

	var exit *CommandError
	if got, err := runtime.RunInContainer(ctx, id, []string{"sh", "-c", "echo oh; exit 4"}, time.Minute); string(got) != "oh\n" || !errors.As(err, &exit) || exit.Code != 4 {
		t.Errorf("command: got %q, %v", got, err)
	}
	f.stub.Exit(id, 0)
	if err := runtime.DeleteContainer(ctx, id); err != nil || f.status(t, p).Container("a") != nil {
		t.Errorf("delete: %v", err)
	}
}

func TestAPIVersionIsKeptForAMinute(t *testing.T) {
	t.Parallel()
	var later atomic.Int64
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return time.Unix(later.Load(), 0) } })
	for _, step := range []struct{ at, calls int }{{0, 1}, {59, 1}, {60, 2}, {119, 2}, {120, 3}, {30, 4}, {31, 4}} { // includes a clock that is set back
		later.Store(int64(step.at))
		if got, err := f.APIVersion(t.Context()); got != "v1" || err != nil {
			t.Errorf("after %d s: got %q, %v", step.at, got, err)
		}
		calls := 0
		for _, method := range f.stub.Methods() {
			if method == "Version" {
				calls++
			}
		}
		if calls != step.calls {
			t.Errorf("after %d s: asked %d times, want %d", step.at, calls, step.calls)
		}
	}
}

func TestNewRefusesOtherVersions(t *testing.T) {
	t.Parallel()
	o := Options{}
	o.answer(map[string]func() (proto.Message, error){"Version": func() (proto.Message, error) {
		return &runtimeapi.VersionResponse{Version: "0.2.0"}, nil
	}})
	if _, err := New(t.Context(), o); err == nil || !strings.Contains(err.Error(), `"0.2.0" of the runtime: must be "0.1.0"`) {
		t.Errorf("got %v", err)
	}
}

// TestInstrumented: calls have the kubelet's metric names. Stopping or removing a missing object succeeds. A response
// without a field that the CRI requires is an error.
func TestInstrumented(t *testing.T) {
	t.Parallel()
	gone := func() (proto.Message, error) { return nil, status.Error(codes.NotFound, "gone") }
	empty := func(m proto.Message) func() (proto.Message, error) {
		return func() (proto.Message, error) { return m, nil }
	}
	answers := map[string]func() (proto.Message, error){
		"StopPodSandbox": gone, "RemovePodSandbox": gone, "StopContainer": gone, "RemoveContainer": gone, "RemoveImage": gone, "ContainerStatus": gone,
		"RunPodSandbox": empty(&runtimeapi.RunPodSandboxResponse{}), "CreateContainer": empty(&runtimeapi.CreateContainerResponse{}),
		"PullImage": empty(&runtimeapi.PullImageResponse{}), "Exec": empty(&runtimeapi.ExecResponse{}), "Attach": empty(&runtimeapi.AttachResponse{}),
		"PortForward": empty(&runtimeapi.PortForwardResponse{}), "ListPodSandbox": empty(&runtimeapi.ListPodSandboxResponse{}),
		"ImageFsInfo": empty(&runtimeapi.ImageFsInfoResponse{}), "ReopenContainerLog": empty(&runtimeapi.ReopenContainerLogResponse{}),
		"UpdateRuntimeConfig": empty(&runtimeapi.UpdateRuntimeConfigResponse{}), "ExecSync": empty(&runtimeapi.ExecSyncResponse{}),
	}
	registry := prometheus.NewRegistry()
	conn := instrumented{answering{answers: answers}, newCounts(registry, time.Now)}
	got := map[string]string{}
	for method, answer := range answers {
		resp, _ := answer()
		if resp == nil {
			resp = &runtimeapi.StopContainerResponse{}
		}
		err := conn.Invoke(t.Context(), "/runtime.v1.RuntimeService/"+method, &runtimeapi.PullImageRequest{Image: &runtimeapi.ImageSpec{Image: "app:1"}}, resp)
		got[operationOf(method)] = ""
		if err != nil {
			got[operationOf(method)] = err.Error()
		}
	}
	want := map[string]string{
		"stop_podsandbox": "", "remove_podsandbox": "", "stop_container": "", "remove_container": "", "remove_image": "",
		"container_status": "rpc error: code = NotFound desc = gone",
		"run_podsandbox":   "the runtime answered with an empty id", "create_container": "the runtime answered with an empty id",
		"pull_image": "pull app:1: the runtime answered with an empty reference",
		"exec":       "the runtime answered without a stream URL", "attach": "the runtime answered without a stream URL",
		"port_forward": "the runtime answered without a stream URL", "list_podsandbox": "", "image_fs_info": "", "reopen_container_log": "",
		"update_runtime_config": "", "exec_sync": "",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			total[family.GetName()] += m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	wantTotal := map[string]float64{
		"kubelet_runtime_operations_total": 17, "kubelet_runtime_operations_errors_total": 12, "kubelet_runtime_operations_duration_seconds": 17,
	}
	if diff := cmp.Diff(wantTotal, total); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
