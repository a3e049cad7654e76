package kuberuntime

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/logfile"
)

// TestInterfaces calls what a library's user would through the interfaces.
func TestInterfaces(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	id := f.status(t, p).Container("a").ID
	var runtime Runtime = f.Manager
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

	var streams StreamingRuntime = f.Manager
	for name, get := range map[string]func() (string, error){
		"exec":         func() (string, error) { return streams.GetExec(ctx, id, []string{"sh"}, true, true, false, true) },
		"attach":       func() (string, error) { return streams.GetAttach(ctx, id, false, true, true, false) },
		"port-forward": func() (string, error) { return streams.GetPortForward(ctx, f.status(t, p).Sandbox().GetId(), nil) },
	} {
		if url, err := get(); !strings.Contains(url, "://") || err != nil {
			t.Errorf("%s: got %q, %v", name, url, err)
		}
	}

	var commands CommandRunner = f.Manager
	var exit *ExitError
	if got, err := commands.RunInContainer(ctx, id, []string{"sh", "-c", "echo oh; exit 4"}, time.Minute); string(got) != "oh\n" || !errors.As(err, &exit) || exit.Code != 4 {
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
	for _, step := range []struct{ at, calls int }{{0, 1}, {59, 1}, {60, 2}, {119, 2}, {120, 3}} {
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

// otherVersion is a runtime of another CRI.
type otherVersion struct {
	runtimeapi.RuntimeServiceClient
}

func (otherVersion) Version(context.Context, *runtimeapi.VersionRequest, ...grpc.CallOption) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.2.0"}, nil
}

func TestNewRefusesOtherVersions(t *testing.T) {
	t.Parallel()
	if _, err := New(t.Context(), Options{Runtime: otherVersion{}}); err == nil || !strings.Contains(err.Error(), `"0.2.0", want "0.1.0"`) {
		t.Errorf("got %v", err)
	}
}
