package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// fixture is a manager over an in-memory runtime.
type fixture struct {
	*Manager
	stub *stubcri.Server

	mu     sync.Mutex
	events []string
}

func newFixture(t *testing.T, change ...func(*Options)) *fixture {
	t.Helper()
	now := time.Now
	f := &fixture{stub: stubcri.Start(t, stubcri.Options{Now: func() time.Time { return now() }})}
	f.stub.AddImage("busybox:1")
	f.stub.AddImage("busybox:2")
	conn, err := grpc.NewClient(f.stub.Endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	dir := t.TempDir()
	o := Options{
		Runtime: conn, Image: conn, Endpoint: "stub",
		Dirs: pod.Dirs{Root: filepath.Join(dir, "root"), Logs: filepath.Join(dir, "logs")},
		Host: criconfig.Host{Name: "node", CPUs: 1, Memory: 1 << 30},
		Events: func(e Event) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.events = append(f.events, strings.TrimSpace(e.Container+" "+e.Reason))
		},
	}
	for _, c := range change {
		c(&o)
	}
	if o.Now != nil {
		now = o.Now // the runtime and the manager share a clock
	}
	f.Manager, err = New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Close)
	return f
}

// answering is a connection that replaces the runtime's answers to some calls.
type answering struct {
	grpc.ClientConnInterface
	answers map[string]func() (proto.Message, error) // by method; a nil message means the runtime's answer
}

func (a answering) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	if answer := a.answers[path.Base(method)]; answer != nil {
		switch m, err := answer(); {
		case err != nil:
			return err
		case m != nil:
			proto.Merge(resp.(proto.Message), m)
			return nil
		}
	}
	return a.ClientConnInterface.Invoke(ctx, method, req, resp, opts...)
}

// answer replaces answers of both services.
func (o *Options) answer(answers map[string]func() (proto.Message, error)) {
	o.Runtime, o.Image = answering{o.Runtime, answers}, answering{o.Image, answers}
}

// Up calls Manager.Up with UntilDone if wait is true, else with UntilStarted.
func (f *fixture) Up(ctx context.Context, p *v1.Pod, set *manifest.Set, wait bool) (*plan.View, error) {
	until := UntilStarted
	if wait {
		until = UntilDone
	}
	view, _, err := f.Manager.Up(ctx, p, set, f.listed(ctx, p), Wait{Until: until, MaxBackOff: DefaultMaxBackOff})
	return view, err
}

func (f *fixture) pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
	return ctx.Err()
}

// listed returns a pod as the runtime lists it, or nil if the pod is missing or the runtime does not answer.
func (f *fixture) listed(ctx context.Context, p *v1.Pod) *pod.Pod {
	pods, _ := f.GetPods(ctx, true)
	for _, one := range pods {
		if one.UID == string(p.UID) {
			return one
		}
	}
	return nil
}

func (f *fixture) reasons() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.events)
}

// changes returns the calls that changed something, in order.
func (f *fixture) changes() []string {
	var out []string
	for _, call := range f.stub.Calls() {
		switch r := call.Request.(type) {
		case *runtimeapi.RunPodSandboxRequest, *runtimeapi.StopPodSandboxRequest, *runtimeapi.RemovePodSandboxRequest, *runtimeapi.PullImageRequest:
			out = append(out, call.Method)
		case *runtimeapi.CreateContainerRequest:
			out = append(out, "Create "+r.GetConfig().GetMetadata().GetName())
		case *runtimeapi.StartContainerRequest, *runtimeapi.StopContainerRequest, *runtimeapi.RemoveContainerRequest:
			out = append(out, call.Method)
		}
	}
	return out
}

func (f *fixture) status(t *testing.T, p *v1.Pod) *pod.Status {
	t.Helper()
	s, err := f.GetPodStatus(t.Context(), string(p.UID), p.Name, p.Namespace)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t *testing.T, spec string) (*v1.Pod, *manifest.Set) {
	t.Helper()
	set, err := manifest.Read(manifest.Options{}, strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n"+spec), "-")
	if err != nil {
		t.Fatal(err)
	}
	set.Pods[0].UID = "u1"
	return set.Pods[0].Pod, set
}

// deadline returns a context for events that must happen. No test waits for its end.
func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestUpAndRemove(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  terminationGracePeriodSeconds: 5
  initContainers: [{name: side, image: "busybox:1", restartPolicy: Always}]
  containers:
  - {name: a, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v}], lifecycle: {preStop: {exec: {command: ["true"]}}}}
  - {name: b, image: "busybox:3", imagePullPolicy: Always}
  volumes: [{name: v, emptyDir: {}}]
`)
	view, err := f.Up(deadline(t), p, set, true)
	if err != nil {
		t.Fatal(err)
	}
	if !view.Ready || view.Phase != v1.PodRunning {
		t.Errorf("got %+v", view)
	}
	want := []string{"RunPodSandbox", "Create side", "StartContainer", "Create a", "StartContainer", "PullImage", "Create b", "StartContainer"}
	if diff := cmp.Diff(want, f.changes()); diff != "" {
		t.Error(diff)
	}
	asked := slices.DeleteFunc(f.stub.Methods(), func(method string) bool { return method != "ImageStatus" })
	if len(asked) != 3 {
		t.Errorf("asked %d times for images, want once for each container", len(asked))
	}
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, f.changes()); diff != "" {
		t.Errorf("a second Up changed something: %s", diff)
	}
	status := f.status(t, p)
	a := status.Container("a")
	if a.RestartCount != 0 || a.Hash != pod.ContainerHash(&p.Spec.Containers[0]) || a.Image != "busybox:1" {
		t.Errorf("got %+v", a)
	}
	if err := f.Remove(deadline(t), nil, status, nil); err != nil {
		t.Fatal(err)
	}
	if pods, containers := f.stub.Left(); pods+containers != 0 {
		t.Errorf("%d pods and %d containers are left", pods, containers)
	}
	for _, dir := range []string{f.o.Dirs.Pod("u1"), f.o.Dirs.PodLogs(p)} {
		if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", dir)
		}
	}
	if !slices.Contains(f.reasons(), "a "+eventPreStop) {
		t.Errorf("no preStop hook in %v", f.reasons())
	}
	if order := f.stopped(status); len(order) != 3 || order[2] != "side" {
		t.Errorf("stopped in the order %v, want the sidecar last", order)
	}
}

// stopped returns the names of the stopped containers, in order.
func (f *fixture) stopped(status *pod.Status) []string {
	var out []string
	for _, call := range f.stub.Calls() {
		if r, ok := call.Request.(*runtimeapi.StopContainerRequest); ok {
			for _, c := range status.Containers {
				if c.ID == r.GetContainerId() {
					out = append(out, c.Name)
				}
			}
		}
	}
	return out
}

// TestKillPodOrder: preStop hooks of regular containers run at the same time. Then sidecars stop in reverse order.
func TestKillPodOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	const hook = `lifecycle: {preStop: {exec: {command: ["true"]}}}`
	p, set := parse(t, `
  initContainers: [{name: s1, image: "busybox:1", restartPolicy: Always, `+hook+`}, {name: s2, image: "busybox:1", restartPolicy: Always, `+hook+`}]
  containers: [{name: a, image: "busybox:1", `+hook+`}]
`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, true); err != nil {
		t.Fatal(err)
	}
	status := f.status(t, p)
	var hooks sync.WaitGroup
	hooks.Add(3)
	f.stub.Before("ExecSync", func(ctx context.Context) {
		hooks.Done()
		all := make(chan struct{})
		go func() { hooks.Wait(); close(all) }()
		select {
		case <-all:
		case <-ctx.Done():
			t.Error("the hooks do not run at the same time")
		}
	})
	if err := f.KillPod(ctx, p, status, nil); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"a", "s2", "s1"}, f.stopped(status)); diff != "" {
		t.Error(diff)
	}
}

func TestUpRunsInitContainersInOrder(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  initContainers: [{name: i, image: "busybox:1"}, {name: j, image: "busybox:1"}]
  containers: [{name: a, image: "busybox:1"}]
`)
	ctx := deadline(t)
	done := make(chan error, 1)
	go func() {
		_, err := f.Up(ctx, p, set, false)
		done <- err
	}()
	for _, name := range []string{"i", "j"} {
		f.stub.Exit(waitRunning(ctx, t, f, p, name), 0)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want := []string{"RunPodSandbox", "Create i", "StartContainer", "Create j", "StartContainer", "Create a", "StartContainer"}
	if diff := cmp.Diff(want, f.changes()); diff != "" {
		t.Error(diff)
	}
}

// waitRunning waits for a container to run and returns its id.
func waitRunning(ctx context.Context, t *testing.T, f *fixture, p *v1.Pod, name string) string {
	t.Helper()
	for {
		if c := f.status(t, p).Container(name); c.Running() {
			return c.ID
		}
		if err := f.pause(ctx, 10*time.Millisecond); err != nil {
			t.Fatalf("waiting for %s: %v", name, err)
		}
	}
}

func TestUpFailures(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name, spec string
		prepare    func(*fixture)
		want       error
		text       string
	}{
		{"never pull", "  containers: [{name: a, image: none, imagePullPolicy: Never}]", nil, ErrImageNeverPull, "container a: ErrImageNeverPull: none is not present"},
		{"pull fails", "  containers: [{name: a, image: none}]", func(f *fixture) { f.stub.Fail("PullImage", errors.New("registry is down")) }, ErrImagePull, "registry is down"},
		{"create fails", `  containers: [{name: a, image: "busybox:1"}]`, func(f *fixture) { f.stub.Fail("CreateContainer", errors.New("no space")) }, ErrCreate, "no space"},
		{"start fails", `  containers: [{name: a, image: "busybox:1"}]`, func(f *fixture) { f.stub.Fail("StartContainer", errors.New("no such file")) }, ErrRun, "no such file"},
		{"no such command", `  containers: [{name: a, image: "busybox:1"}]`, func(f *fixture) {
			f.stub.Fail("StartContainer", errors.New(`failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: `+
				`unable to start container process: exec: "srever": executable file not found in $PATH: unknown`))
		}, ErrRun, `container a: RunContainerError: exec: "srever": executable file not found in $PATH`},
		{"root", `  containers: [{name: a, image: "busybox:1", securityContext: {runAsNonRoot: true, runAsUser: 0}}]`, nil, ErrCreateConfig, "runAsNonRoot"},
		{"hook", `  containers: [{name: a, image: "busybox:1", lifecycle: {postStart: {exec: {command: [sh, -c, "echo broken; exit 3"]}}}}]`, nil, ErrPostStart, "command ended with status 3: broken"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			if c.prepare != nil {
				c.prepare(f)
			}
			p, set := parse(t, c.spec)
			_, err := f.Up(deadline(t), p, set, false)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v, want %v with %q", err, c.want, c.text)
			}
		})
	}
}

// TestUpRepairs: a call fails during the first Up. The second Up completes the pod.
func TestUpRepairs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}, {name: b, image: "busybox:1"}]`)
	f.stub.Fail("StartContainer", errors.New("the daemon died"))
	if _, err := f.Up(deadline(t), p, set, false); err == nil {
		t.Fatal("no error")
	}
	f.stub.Fail("StartContainer", nil)
	view, err := f.Up(deadline(t), p, set, true)
	if err != nil || !view.Ready {
		t.Fatalf("got %+v, %v", view, err)
	}
	sandboxes := 0
	for _, c := range f.changes() {
		if c == "RunPodSandbox" {
			sandboxes++
		}
	}
	if sandboxes != 1 {
		t.Errorf("%d sandboxes were made", sandboxes)
	}
}

func TestNewImageRestartsOneContainer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}, {name: b, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	before := f.status(t, p)
	p.Spec.Containers[0].Image = "busybox:2"
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	after := f.status(t, p)
	if a := after.Container("a"); a.ID == before.Container("a").ID || a.Image != "busybox:2" || a.RestartCount != 1 {
		t.Errorf("a: got %+v", a)
	}
	if after.Container("b").ID != before.Container("b").ID || len(after.Sandboxes) != 1 {
		t.Error("b or the sandbox was replaced too")
	}
}

func TestCrashBackOff(t *testing.T) {
	t.Parallel()
	clock := time.Now()
	var mu sync.Mutex
	now := func() time.Time { mu.Lock(); defer mu.Unlock(); return clock }
	f := newFixture(t, func(o *Options) { o.Now = now })
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	step := func() SyncResult { return f.SyncPod(t.Context(), p, set, f.status(t, p)) }
	step()
	f.stub.Exit(f.status(t, p).Container("a").ID, 1)
	if r := step(); r.Err != nil { // after its first crash, a container restarts at once
		t.Fatal(r.Err)
	}
	f.stub.Exit(f.status(t, p).Container("a").ID, 1)
	// FinishedAt comes from the stub's real clock. Set the manager's clock to it, because the back-off counts from it.
	ended := f.status(t, p).Container("a").FinishedAt
	mu.Lock()
	clock = ended
	mu.Unlock()
	r := step()
	if !errors.Is(r.Err, ErrCrashLoopBackOff) || r.RetryAfter <= 0 || !r.onlyBackOff() {
		t.Fatalf("got %v after %s, want a back-off", r.Err, r.RetryAfter)
	}
	step() // a second step does not repeat the event
	if n := len(slices.DeleteFunc(f.reasons(), func(r string) bool { return r != "a "+eventBackOff })); n != 1 {
		t.Errorf("told %d times of one back-off", n)
	}
	mu.Lock()
	clock = clock.Add(r.RetryAfter)
	mu.Unlock()
	if r := step(); r.Err != nil {
		t.Errorf("after the back-off: %v", r.Err)
	}
	if n := f.status(t, p).Container("a").RestartCount; n != 2 {
		t.Errorf("got %d restarts, want 2", n)
	}
}

// TestSidecarInBackOffHoldsNothingBack: a main container restarts while a sidecar waits for its next try, as in kubelet
// 1.37.
func TestSidecarInBackOffHoldsNothingBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  initContainers: [{name: side, image: "busybox:1", restartPolicy: Always}]
  containers: [{name: a, image: "busybox:1"}]
`)
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	step := func() SyncResult { return f.SyncPod(t.Context(), p, set, f.status(t, p)) }
	f.stub.Exit(f.status(t, p).Container("side").ID, 1)
	if r := step(); r.Err != nil { // after its first crash, a container restarts at once
		t.Fatal(r.Err)
	}
	for _, name := range []string{"side", "a"} {
		f.stub.Exit(f.status(t, p).Container(name).ID, 1)
	}
	r := step()
	if !errors.Is(r.Err, ErrCrashLoopBackOff) || !r.onlyBackOff() || f.status(t, p).Container("side").Running() {
		t.Errorf("got %v, want that the sidecar waits", r.Err)
	}
	if a := f.status(t, p).Container("a"); !a.Running() || a.RestartCount != 1 {
		t.Errorf("the main container: got %+v, want that it runs again", a)
	}
}

// TestLeftLogsAreNoRestarts: the log directory has logs of an earlier pod. The logs stay, and the new pod begins with 0
// restarts.
func TestLeftLogsAreNoRestarts(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	left := filepath.Join(f.o.Dirs.PodLogs(p), "a")
	if err := os.MkdirAll(left, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, "2.log"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for restarts := range 2 {
		if r := f.SyncPod(t.Context(), p, set, f.status(t, p)); r.Err != nil {
			t.Fatal(r.Err)
		}
		a := f.status(t, p).Container("a")
		if log := fmt.Sprintf("%d.log", restarts+3); a.RestartCount != restarts || filepath.Base(a.LogPath) != log {
			t.Errorf("got %d restarts and the log %s, want %d and %s", a.RestartCount, a.LogPath, restarts, log)
		}
		f.stub.Exit(a.ID, 1)
	}
}

// TestDeadline covers a pod that ends in time and a pod that runs past its deadline.
func TestDeadline(t *testing.T) {
	t.Parallel()
	for _, inTime := range []bool{true, false} {
		var late atomic.Int64
		f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) } })
		p, set := parse(t, `
  restartPolicy: Never
  activeDeadlineSeconds: 300
  containers: [{name: a, image: "busybox:1"}]`)
		if _, err := f.Up(deadline(t), p, set, false); err != nil {
			t.Fatal(err)
		}
		want, reason := v1.PodFailed, EventDeadline
		if inTime {
			f.stub.Exit(f.status(t, p).Container("a").ID, 0)
			want, reason = v1.PodSucceeded, ""
		}
		late.Store(int64(time.Hour))
		status := f.status(t, p)
		got := f.APIPod(p, f.View(p, status), status).Status
		if got.Phase != want || got.Reason != reason {
			t.Errorf("ended in time %t: got %s, %q", inTime, got.Phase, got.Reason)
		}
		if r := f.SyncPod(t.Context(), p, set, status); r.Err != nil || f.status(t, p).Container("a").Running() {
			t.Errorf("ended in time %t: it was not stopped: %v", inTime, r.Err)
		}
	}
}

// TestDeadlineSurvivesAReplacedSandbox: the deadline counts from the first sandbox, also after garbage collection of
// that sandbox.
func TestDeadlineSurvivesAReplacedSandbox(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  activeDeadlineSeconds: 300
  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	first := f.status(t, p)
	f.stub.StopPod(first.Sandbox().GetId())
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	if _, err := f.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: first.Sandbox().GetId()}); err != nil {
		t.Fatal(err)
	}
	if left := f.untilDeadline(p, f.status(t, p)); left > first.Started().Add(300*time.Second).Sub(f.o.Now()) {
		t.Errorf("%s are left, more than from the first start on", left)
	}
	for _, sandbox := range f.status(t, p).Sandboxes { // without any sandbox, the pod starts again
		if _, err := f.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
			t.Fatal(err)
		}
	}
	before := f.o.Now()
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	if left := f.untilDeadline(p, f.status(t, p)); left < before.Add(300*time.Second).Sub(f.o.Now()) {
		t.Errorf("%s are left after all of it was removed, less than from then on", left)
	}
}

// TestBackOffOfKilledContainers: a container that is killed repeatedly because of its probes also backs off. The
// back-off counts from its last end.
func TestBackOffOfKilledContainers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	killed := func() SyncResult {
		s := f.status(t, p)
		ended := *s.Container("a")
		ended.State, ended.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, time.Now()
		s.Container("a").Hash++ // a changed hash kills the container, as a failed probe does
		s.Containers = append(s.Containers, &ended)
		return f.SyncPod(t.Context(), p, set, s)
	}
	if r := killed(); r.Err != nil {
		t.Fatalf("the first time: %v", r.Err)
	}
	if r := killed(); !errors.Is(r.Err, ErrCrashLoopBackOff) {
		t.Errorf("the second time: got %v, want a back-off", r.Err)
	}
}

// TestDescribe: a process that did not run the pod's probes describes the pod's readiness.
func TestDescribe(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1", readinessProbe: {exec: {command: ["true"]}, timeoutSeconds: 30}}, {name: b, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, false); err != nil {
		t.Fatal(err)
	}
	f.stub.Exit(f.status(t, p).Container("b").ID, 3)
	// An unreadable state does not prevent the rest of the description.
	if err := os.WriteFile(filepath.Join(f.o.Dirs.Pod(string(p.UID)), "state-0.json"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	pods, err := f.GetPods(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	d, err := f.Describe(deadline(t), pods[0])
	if err != nil {
		t.Fatal(err)
	}
	a, b := d.Pod.Status.ContainerStatuses[0], d.Pod.Status.ContainerStatuses[1]
	if !d.Recorded || !a.Ready || b.Ready || b.State.Terminated == nil || b.State.Terminated.ExitCode != 3 {
		t.Errorf("got %+v and %+v", a, b)
	}
}

// TestDescribeAPodThatIsDebugged: a debug container is described as an ephemeral container.
func TestDescribeAPodThatIsDebugged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	debugger := func(c *runtimeapi.ContainerConfig) { c.Labels = map[string]string{kube.LabelDebug: "x"} }
	web := f.stub.AddPod("default", "web")
	f.stub.Exit(f.stub.AddContainer(web, "main"), 0)
	f.stub.AddContainer(web, "debug-1", debugger)
	pods, err := f.GetPods(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, p := range pods {
		d, err := f.Describe(deadline(t), p)
		if err != nil {
			t.Fatal(err)
		}
		got[p.Name] = fmt.Sprintf("%d containers, %d ephemeral", len(d.Pod.Spec.Containers), len(d.Pod.Spec.EphemeralContainers))
	}
	if diff := cmp.Diff(map[string]string{"web": "1 containers, 1 ephemeral"}, got); diff != "" {
		t.Error(diff)
	}
}

// TestDescribeSaysWhyContainersWait: the reasons come from the recorded events.
func TestDescribeSaysWhyContainersWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) {
		o.Events = func(e Event) {
			if err := AppendEvent(o.Dirs, e); err != nil {
				t.Error(err)
			}
		}
	})
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}, {name: b, image: none, imagePullPolicy: Never}, {name: c, image: gone}]`)
	f.stub.Fail("PullImage", errors.New("registry is down"))
	sync := func() {
		t.Helper()
		if result := f.SyncPod(deadline(t), p, set, f.status(t, p)); result.Err == nil {
			t.Fatal("all was started")
		}
	}
	reasons := func() string {
		t.Helper()
		pods, err := f.GetPods(t.Context(), true)
		if err != nil {
			t.Fatal(err)
		}
		d, err := f.Describe(deadline(t), pods[0])
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, c := range d.Pod.Status.ContainerStatuses {
			reason := ""
			if c.State.Waiting != nil {
				reason = c.State.Waiting.Reason
			}
			if c.LastTerminationState.Terminated != nil {
				reason += " after an end"
			}
			if c.State.Terminated != nil {
				reason += "ended"
			}
			out = append(out, c.Name+": "+reason)
		}
		return strings.Join(out, ", ")
	}
	sync()
	if got := reasons(); got != "a: , b: ErrImageNeverPull, c: ErrImagePull" {
		t.Errorf("after the first step: %s", got)
	}
	f.stub.Exit(f.status(t, p).Container("a").ID, 3)
	if got := reasons(); got != "a: ended, b: ErrImageNeverPull, c: ErrImagePull" {
		t.Errorf("after an end: %s", got)
	}
	sync() // the first restart has no back-off
	f.stub.Exit(f.status(t, p).Container("a").ID, 3)
	sync()
	if got := reasons(); got != "a: CrashLoopBackOff after an end, b: ErrImageNeverPull, c: ImagePullBackOff" {
		t.Errorf("in the back-off: %s", got)
	}
}

// TestUpStartsEphemeralContainers: Up also starts the ephemeral containers of a new sandbox.
func TestUpStartsEphemeralContainers(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		f := newFixture(t)
		p, set := parse(t, `
  containers: [{name: a, image: "busybox:1"}]
  ephemeralContainers: [{name: look, image: "busybox:1", targetContainerName: a}]
`)
		if _, err := f.Up(deadline(t), p, set, wait); err != nil {
			t.Fatal(err)
		}
		if c := f.status(t, p).Container("look"); c == nil || c.StartedAt.IsZero() {
			t.Errorf("wait %t: got %+v, want it started", wait, c)
		}
	}
}
