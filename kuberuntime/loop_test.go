package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestWorkerRests: a worker does not poll a pod after its deadline has passed.
func TestWorkerRests(t *testing.T) {
	t.Parallel()
	var late atomic.Int64
	f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(late.Load())) } })
	p, set := parse(t, `
  activeDeadlineSeconds: 300
  containers: [{name: a, image: "busybox:1"}]`)
	if _, err := f.Up(deadline(t), p, set, false); err != nil {
		t.Fatal(err)
	}
	w := newWorker(f.Manager, string(p.UID), FullName(p), desired{p, set}, &runtimeState{})
	if next, _ := w.step(t.Context()); next <= 0 || next > resync {
		t.Errorf("before the deadline: next look in %s", next)
	}
	late.Store(int64(time.Hour))
	for range 2 { // the first step stops the pod
		if next, _ := w.step(t.Context()); next < retryPeriod {
			t.Errorf("after the deadline: next look in %s", next)
		}
	}
}

// TestRoundsAreMeasured: as in the kubelet, metrics have the duration of each step by operation, and the time until a
// pod runs.
func TestRoundsAreMeasured(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	now := time.Unix(100_000, 0)
	f := newFixture(t, func(o *Options) { o.Registerer, o.Now = registry, func() time.Time { return now } })
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	if err := Prepare(p, "", now); err != nil {
		t.Fatal(err)
	}
	w := newWorker(f.Manager, string(p.UID), FullName(p), desired{p, set}, &runtimeState{})
	now = now.Add(3 * time.Second)
	w.step(t.Context()) // create
	now = now.Add(4 * time.Second)
	w.step(t.Context()) // sync: the pod runs
	w.step(t.Context())
	w.update(desired{p.DeepCopy(), set})
	w.step(t.Context())
	w.remove()
	w.step(t.Context())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if name := family.GetName(); strings.HasPrefix(name, "kubelet_pod_") {
				for _, l := range m.GetLabel() {
					name += " " + l.GetValue()
				}
				got[name] = fmt.Sprint(m.GetHistogram().GetSampleCount(), " in ", m.GetHistogram().GetSampleSum(), " s")
			}
		}
	}
	want := map[string]string{
		"kubelet_pod_worker_start_duration_seconds": "1 in 3 s", "kubelet_pod_start_duration_seconds": "1 in 7 s",
		"kubelet_pod_worker_duration_seconds create": "1 in 0 s", "kubelet_pod_worker_duration_seconds sync": "2 in 0 s",
		"kubelet_pod_worker_duration_seconds update": "1 in 0 s", "kubelet_pod_worker_duration_seconds kill": "1 in 0 s",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestRetriesBackOff: retries of a failing pod back off, until its manifest changes or a step succeeds.
func TestRetriesBackOff(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	f.stub.Fail("CreateContainer", errors.New("no space"))
	w := newWorker(f.Manager, string(p.UID), FullName(p), desired{p, set}, &runtimeState{})
	for _, want := range []time.Duration{2, 4, 8, 16, 32, 60, 60} {
		if next, _ := w.step(t.Context()); next != want*time.Second {
			t.Errorf("next try in %s, want %d s", next, want)
		}
	}
	w.update(desired{p.DeepCopy(), set})
	if next, _ := w.step(t.Context()); next != retryPeriod {
		t.Errorf("after a change: next try in %s", next)
	}
	f.stub.Fail("CreateContainer", nil)
	if next, _ := w.step(t.Context()); next != 0 {
		t.Errorf("after a step that went well: next look in %s", next)
	}
	f.stub.Fail("ListContainers", errors.New("broken"))
	for _, want := range []time.Duration{2, 4} {
		if next, _ := w.step(t.Context()); next != want*time.Second {
			t.Errorf("without a status: next try in %s, want %d s", next, want)
		}
	}
}

// runtimeCondition returns a condition that is true while no is false.
func runtimeCondition(name string, no *atomic.Bool) *runtimeapi.RuntimeCondition {
	return &runtimeapi.RuntimeCondition{Type: name, Status: !no.Load(), Reason: "Why", Message: "it is so"}
}

// TestLoopWaitsForTheRuntime: a Loop waits for the runtime or its network, and reports that once.
func TestLoopWaitsForTheRuntime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what    string
		network bool
		runs    string // the pod that runs without the condition
	}{{"runtime", false, ""}, {"network", true, "host"}} {
		t.Run(c.what, func(t *testing.T) {
			t.Parallel()
			var noRuntime, noNetwork atomic.Bool
			noRuntime.Store(!c.network)
			noNetwork.Store(c.network)
			f := newFixture(t, func(o *Options) {
				o.answer(map[string]func() (proto.Message, error){"Status": func() (proto.Message, error) {
					return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
						runtimeCondition(runtimeapi.RuntimeReady, &noRuntime), runtimeCondition(runtimeapi.NetworkReady, &noNetwork),
					}}}, nil
				}})
			})
			l := &looped{fixture: f, t: t, directory: t.TempDir()}
			loop, said := l.reporting()
			l.write("pod.yaml", staticPod("pod", "busybox:1"))
			l.write("host.yaml", strings.Replace(staticPod("host", "busybox:1"), "spec: {", "spec: {hostNetwork: true, ", 1))
			ctx, cancel := context.WithCancel(t.Context())
			defer loop.wg.Wait()
			defer cancel()
			loop.state.noRuntime.Store(true)
			for range 3 {
				loop.iterate(ctx)
			}
			l.until("what may run", running(strings.Fields(c.runs)...))
			noRuntime.Store(false)
			noNetwork.Store(false)
			loop.iterate(ctx)
			l.until("both", running("host", "pod"))
			want := []string{c.what + ": not ready, pods wait: Why: it is so", c.what + ": <nil>"}
			if diff := cmp.Diff(want, *said); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestLoopWakesPodsWhenTheRuntimeIsBack: pods may be in a long back-off after failures.
func TestLoopWakesPodsWhenTheRuntimeIsBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	directory := t.TempDir()
	if err := os.WriteFile(filepath.Join(directory, "a.yaml"), []byte(staticPod("a", "busybox:1")), 0o600); err != nil {
		t.Fatal(err)
	}
	loop, err := f.NewLoop(LoopOptions{Dir: directory})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { loop.Close() })
	loop.directory.settle = 0
	f.stub.Fail("ListContainers", errors.New("broken"))
	loop.iterate(t.Context())
	loop.fresh = false
	var w *worker
	for uid, want := range loop.directory.pods {
		w = newWorker(f.Manager, uid, FullName(want.pod), want, &loop.state)
		loop.workers[uid] = w
	}
	loop.iterate(t.Context())
	if next, _ := w.step(t.Context()); next != resync || len(w.wake) > 0 {
		t.Errorf("while the runtime lists nothing: next look in %s, woken %d times", next, len(w.wake))
	}
	f.stub.Fail("ListContainers", nil)
	loop.iterate(t.Context())
	if len(w.wake) != 1 {
		t.Error("not woken when the runtime is back")
	}
}

// Annotations in a manifest from describe or another tool do not set the owner of the pod.
func TestAManifestChoosesNoOwner(t *testing.T) {
	t.Parallel()
	for _, directory := range []string{"", "/ours"} {
		p := &v1.Pod{}
		p.Annotations = map[string]string{pod.DirAnnotation: "/theirs", pod.ConfigHashAnnotation: "x", "note": "y"}
		if err := Prepare(p, directory, time.Now()); err != nil {
			t.Fatal(err)
		}
		if got := p.Annotations; got[pod.DirAnnotation] != directory || got[pod.ConfigHashAnnotation] == "x" || got["note"] != "y" {
			t.Errorf("in %q: got %v", directory, got)
		}
	}
}

// TestLoopCollectsItsOwnOnly: a Loop keeps the dead containers and sandboxes of other owners, and the directories of
// pods from apply.
func TestLoopCollectsItsOwnOnly(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	ctx := deadline(t)
	made := map[string]*v1.Pod{}
	for name, directory := range map[string]string{"ours": "/ours", "theirs": "/theirs", "apply": ""} {
		set, err := manifest.Read(manifest.Options{}, strings.NewReader(staticPod(name, "busybox:1")), "-")
		if err != nil {
			t.Fatal(err)
		}
		p := set.Pods[0].Pod
		if err := Prepare(p, directory, time.Now()); err != nil {
			t.Fatal(err)
		}
		made[name] = p
		for range 2 { // two dead sandboxes with a dead container each
			if _, err := f.Up(ctx, p, set, false); err != nil {
				t.Fatal(err)
			}
			f.stub.StopPod(f.status(t, p).Sandbox().GetId())
		}
		lost := p.DeepCopy()
		lost.UID = types.UID("lost-" + name)
		if err := os.MkdirAll(f.o.Dirs.Pod(string(lost.UID)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := f.recordPod(t.Context(), lost, &pod.Status{}); err != nil {
			t.Fatal(err)
		}
	}
	live := map[string]bool{}
	for _, p := range made {
		live[string(p.UID)] = true
	}
	l := &Loop{m: f.Manager, directory: &directory{path: "/ours"}}
	collect := func() []string {
		t.Helper()
		g, err := f.PlanGarbage(ctx, DefaultGCPolicy(), l.sources())
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range g.Items {
			got = append(got, item.Kind+" "+item.Name)
		}
		return got
	}
	if diff := cmp.Diff([]string{"container default/ours/main", "sandbox default/ours"}, collect()); diff != "" {
		t.Errorf("while the directory is not read in full: %s", diff)
	}
	l.live.Store(&live)
	if diff := cmp.Diff([]string{"container default/ours/main", "sandbox default/ours", "pod directory default/ours"}, collect()); diff != "" {
		t.Error(diff)
	}
	live["lost-ours"] = true // a wanted pod, not yet created
	if got := collect(); len(got) != 2 {
		t.Errorf("got %v, want nothing of a pod that is wanted", got)
	}
}

// looped is a fixture with a directory and a running Loop on it.
type looped struct {
	*fixture
	t         *testing.T
	directory string
	stop      func()
}

func newLooped(t *testing.T) *looped {
	t.Helper()
	l := &looped{fixture: newFixture(t), t: t, directory: t.TempDir()}
	l.start()
	return l
}

func (l *looped) start() {
	l.t.Helper()
	loop, err := l.NewLoop(LoopOptions{Dir: l.directory, GC: DefaultGCPolicy()})
	if err != nil {
		l.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); loop.Run(ctx) }()
	stopped := false
	l.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		<-done
		if err := loop.Close(); err != nil {
			l.t.Error(err)
		}
	}
	l.t.Cleanup(l.stop)
}

func (l *looped) write(name, text string) {
	l.t.Helper()
	tmp := filepath.Join(l.directory, ".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(l.directory, name)); err != nil {
		l.t.Fatal(err)
	}
}

// until waits until ok returns true for the pods of the runtime.
func (l *looped) until(what string, ok func([]*pod.Pod) bool) []*pod.Pod {
	l.t.Helper()
	ctx := deadline(l.t)
	for {
		pods, err := l.GetPods(ctx, true)
		if err != nil {
			l.t.Fatalf("waiting for %s: %v", what, err)
		}
		if ok(pods) {
			return pods
		}
		if err := l.pause(ctx, poll); err != nil {
			l.t.Fatalf("waiting for %s: %v; events %v", what, err, l.reasons())
		}
	}
}

func running(names ...string) func([]*pod.Pod) bool {
	return func(pods []*pod.Pod) bool {
		var got []string
		for _, p := range pods {
			n := 0
			for _, c := range p.Containers {
				if c.GetState().String() == "CONTAINER_RUNNING" {
					n++
				}
			}
			if n == 1 {
				got = append(got, p.Name)
			}
		}
		return strings.Join(got, " ") == strings.Join(names, " ") && len(pods) == len(names)
	}
}

func staticPod(name, image string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + "}\nspec: {terminationGracePeriodSeconds: 1, containers: [{name: main, image: '" + image + "'}]}\n"
}

// reporting returns a loop that the test steps through, and the problems that the loop reports.
func (l *looped) reporting() (loop *Loop, problems *[]string) {
	l.t.Helper()
	problems = new([]string)
	loop, err := l.NewLoop(LoopOptions{Dir: l.directory, Problem: func(what string, err error) {
		*problems = append(*problems, fmt.Sprint(what, ": ", err))
	}})
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { loop.Close() })
	loop.directory.settle = 0
	return loop, problems
}

// TestNameConflictsEnd: a taken name is a problem only as long as the directory wants the name.
func TestNameConflictsEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	l := &looped{fixture: f, t: t, directory: t.TempDir()}
	l.stub.AddPod("default", "web")
	loop, said := l.reporting()
	for range 2 {
		l.write("web.yaml", staticPod("web", "busybox:1"))
		loop.iterate(t.Context())
		loop.iterate(t.Context())
		if err := os.Remove(filepath.Join(l.directory, "web.yaml")); err != nil {
			t.Fatal(err)
		}
		loop.iterate(t.Context())
		loop.iterate(t.Context())
	}
	taken := "names of pods: a pod default/web that another tool made is there already (uid default-web-uid)"
	want := []string{taken, "names of pods: <nil>", taken, "names of pods: <nil>"}
	if diff := cmp.Diff(want, *said); diff != "" {
		t.Error(diff)
	}
}

// TestLoop changes a directory step by step and waits for the pods to follow.
func TestLoop(t *testing.T) {
	t.Parallel()
	l := newLooped(t)
	foreign := l.stub.AddPod("kube-system", "etcd")
	l.stub.StopPod(foreign)
	others := func(want func([]*pod.Pod) bool) func([]*pod.Pod) bool {
		return func(pods []*pod.Pod) bool {
			var ours []*pod.Pod
			found := false
			for _, p := range pods {
				if p.Name == "etcd" {
					found = true
					continue
				}
				ours = append(ours, p)
			}
			if !found {
				t.Fatal("a pod of somebody else was removed")
			}
			return want(ours)
		}
	}
	l.write("a.yaml", staticPod("a", "busybox:1"))
	l.write("b.yaml", staticPod("b", "busybox:1"))
	pods := l.until("both pods", others(running("a", "b")))

	first := pods[0].Containers[0].GetId()
	l.stub.Exit(first, 1)
	l.until("a restart", others(func(pods []*pod.Pod) bool {
		return running("a", "b")(pods) && len(pods[0].Containers) > 1
	}))

	l.write("broken.yaml", "kind: Pod\napiVersion: v1\nspecs: {}\n")
	if err := os.Remove(filepath.Join(l.directory, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	l.write("c.yaml", staticPod("c", "busybox:1"))
	l.until("c, and b gone although another file has a problem", others(running("a", "c")))
	l.write("c.yaml", "") // as `generate > c.yaml` does at first
	l.write("d.yaml", staticPod("d", "busybox:1"))
	l.until("d, and c although its file is empty", others(running("a", "c", "d")))

	// The next sync has not seen the content of c.yaml.
	l.stop()
	if err := os.Remove(filepath.Join(l.directory, "d.yaml")); err != nil {
		t.Fatal(err)
	}
	l.start()
	before := l.until("d gone", others(running("a", "c")))

	l.write("c.yaml", staticPod("c", "busybox:2"))
	after := l.until("c with its new image", others(func(pods []*pod.Pod) bool {
		if !running("a", "c")(pods) {
			return false
		}
		for _, c := range pods[1].Containers {
			if c.GetState().String() == "CONTAINER_RUNNING" && c.GetImage().GetUserSpecifiedImage() == "busybox:2" {
				return true
			}
		}
		return false
	}))
	if before[0].UID != after[0].UID || len(before[0].Sandboxes) != len(after[0].Sandboxes) {
		t.Errorf("a was not adopted: %v, then %v", before[0], after[0])
	}
	if _, err := l.NewLoop(LoopOptions{Dir: l.directory}); err == nil {
		t.Error("two loops took one directory")
	}
	if !DirInUse(l.o.Dirs, l.directory) {
		t.Error("the directory does not count as in use")
	}
}

// Commands check whether a sync runs on a directory. A sync that starts at the same time must not fail.
func TestLookingAtADirectoryStopsNoLoop(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	directory := t.TempDir()
	stop := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(stop)
	for range 2 {
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					DirInUse(f.o.Dirs, directory)
				}
			}
		})
	}
	for i := range 500 {
		l, err := f.NewLoop(LoopOptions{Dir: directory})
		if err != nil {
			t.Fatalf("loop %d: %v", i, err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if left, err := filepath.Glob(filepath.Join(f.o.Dirs.Root, "sync", "*")); err != nil || len(left) > 0 {
		t.Errorf("left are %v, %v", left, err)
	}
}

// TestOnceEnds: the wait ends if the directory disappears or keeps changing. No pod is removed.
func TestOnceEnds(t *testing.T) {
	t.Parallel()
	for what, c := range map[string]struct {
		at   func(path string) error // at each poll
		want string
	}{
		"gone":      {func(path string) error { return os.RemoveAll(filepath.Dir(path)) }, "no such file"},
		"rewritten": {func(path string) error { return os.WriteFile(path, []byte(staticPod("a", "busybox:1")), 0o600) }, "still change"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			dir := filepath.Join(t.TempDir(), "manifests")
			path := filepath.Join(dir, "a.yaml")
			if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(path, []byte(staticPod("a", "busybox:1")), 0o600)); err != nil {
				t.Fatal(err)
			}
			l, err := f.NewLoop(LoopOptions{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			start, polls := time.Now(), 0
			l.directory.now = func() time.Time {
				polls++
				if polls > 1 {
					if err := c.at(path); err != nil {
						t.Error(err)
					}
				}
				return start.Add(time.Duration(polls-1) * 10 * time.Second)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			if err := l.RunOnce(ctx, Wait{}); err == nil || !strings.Contains(err.Error(), c.want) || ctx.Err() != nil {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// TestOnceWithoutTheDirectory: reading the directory is what finds that it is missing.
func TestOnceWithoutTheDirectory(t *testing.T) {
	t.Parallel()
	l, err := newFixture(t).NewLoop(LoopOptions{Dir: filepath.Join(t.TempDir(), "missing")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := l.RunOnce(t.Context(), Wait{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}
