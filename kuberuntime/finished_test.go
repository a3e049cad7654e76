package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// next returns a new process: a Manager on the same runtime and directories.
func (f *fixture) next(t *testing.T) *fixture {
	t.Helper()
	f.Close()
	m, err := New(t.Context(), f.o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return &fixture{Manager: m, stub: f.stub}
}

// forget removes the pod's containers from the runtime, or with sandboxes also its sandboxes.
func (f *fixture) forget(t *testing.T, p *v1.Pod, sandboxes bool, containers ...string) {
	t.Helper()
	s := f.status(t, p)
	for _, c := range s.Containers {
		if len(containers) > 0 && c.Name != containers[0] {
			continue
		}
		if _, err := f.runtime.RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: c.ID}); err != nil {
			t.Fatal(err)
		}
	}
	for _, sandbox := range s.Sandboxes {
		if sandboxes {
			f.stub.StopPod(sandbox.GetId())
			if _, err := f.runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// started counts the calls that create sandboxes and containers.
func (f *fixture) started() string {
	n := 0
	for _, call := range f.changes() {
		if call == "RunPodSandbox" || strings.HasPrefix(call, "Create ") {
			n++
		}
	}
	return fmt.Sprint(n)
}

// TestChangedSandboxOfANeverPod: the pod is stopped without a new sandbox, and its events have the reason.
func TestChangedSandboxOfANeverPod(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  restartPolicy: Never
  containers: [{name: main, image: "busybox:1"}]
`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	p.Spec.HostNetwork = true
	if _, err := f.Up(ctx, p, set, false); err != nil && !errors.Is(err, ErrPodFailed) {
		t.Fatal(err)
	}
	if !slices.Contains(f.reasons(), EventSandboxChanged) || !isDead(f.status(t, p)) || len(f.status(t, p).Sandboxes) != 1 {
		t.Errorf("got events %q and status %+v", f.reasons(), f.status(t, p))
	}
}

// TestSandboxOfAContainerThatCannotBeStopped: the sandbox is stopped nevertheless, which frees its host ports.
func TestSandboxOfAContainerThatCannotBeStopped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  containers: [{name: main, image: "busybox:1"}]
`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	stuck := errors.New("the process does not end")
	f.stub.Fail("StopContainer", stuck)
	if err := f.killPod(ctx, p, f.status(t, p), nil, nil); err == nil || !strings.Contains(err.Error(), stuck.Error()) {
		t.Errorf("got %v, want the container's error", err)
	}
	if state := f.status(t, p).Sandbox().GetState(); state != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Errorf("the sandbox is %s", state)
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := f.killPod(ended, p, &pod.Status{Sandboxes: f.status(t, p).Sandboxes}, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("after an interrupt: got %v, want cancelled", err)
	}
}

// TestInterruptDuringAHook: the hook has not failed, and the container keeps running.
func TestInterruptDuringAHook(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  containers: [{name: main, image: "busybox:1", lifecycle: {postStart: {sleep: {seconds: 20}}}}]
`)
	ctx, cancel := context.WithTimeout(deadline(t), 2*time.Second)
	defer cancel()
	if _, err := f.Up(ctx, p, set, false); err == nil || errors.Is(err, ErrPostStart) {
		t.Errorf("got %v, want the end of the wait", err)
	}
	if reasons := f.reasons(); slices.Contains(reasons, "main "+EventPostStartFailed) || slices.Contains(reasons, "main "+EventKilling) {
		t.Errorf("got events %q", reasons)
	}
}

// TestFinishedPodsStayFinished: sync and apply do not run a finished pod again after the runtime has lost its
// containers, in a new process, or on a reinstalled engine.
func TestFinishedPodsStayFinished(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy string
		code   int32
		phase  v1.PodPhase
	}{{"Never", 0, v1.PodSucceeded}, {"OnFailure", 0, v1.PodSucceeded}, {"Never", 3, v1.PodFailed}} {
		for what, forget := range map[string]func(f *fixture, p *v1.Pod){
			"containers": func(f *fixture, p *v1.Pod) { f.forget(t, p, false) },
			"all":        func(f *fixture, p *v1.Pod) { f.forget(t, p, true) },
		} {
			t.Run(fmt.Sprint(c.policy, c.code, " without its ", what), func(t *testing.T) {
				t.Parallel()
				var engine atomic.Value
				engine.Store("one")
				f := newFixture(t, func(o *Options) {
					o.answer(map[string]func() (proto.Message, error){"Status": func() (proto.Message, error) {
						return &runtimeapi.StatusResponse{Info: map[string]string{"config": `{"engineID": "` + engine.Load().(string) + `", "dockerRootDir": "/var/lib/docker"}`}}, nil
					}})
				})
				f.stub.AfterStart("a", func(id string) { f.stub.Exit(id, c.code) })
				p, set := parse(t, "  restartPolicy: "+c.policy+"\n  containers: [{name: a, image: \"busybox:1\"}]")
				_, _ = f.Up(deadline(t), p, set, true)
				before := f.started()
				forget(f, p)
				check := func(what string, f *fixture) {
					t.Helper()
					w := newWorker(f.Manager, string(p.UID), FullName(p), desired{p, set}, &runtimeState{})
					for range 3 {
						w.step(t.Context())
					}
					view, err := f.Up(deadline(t), p, set, true)
					if view == nil || view.Phase != c.phase || (err == nil) != (c.code == 0) || f.started() != before {
						t.Errorf("%s: got %+v, %v, %s starts after %s", what, view, err, f.started(), before)
					}
				}
				check("in the same process", f)
				check("in the next", f.next(t))
				engine.Store("two")
				check("with a new engine", f.next(t))
				listed := cmp.Or(f.listed(t.Context(), p), &pod.Pod{UID: string(p.UID), Name: p.Name, Namespace: p.Namespace})
				d, err := f.next(t).Describe(t.Context(), listed)
				if err != nil || d.View.Phase != c.phase {
					t.Errorf("described as %+v, %v", d, err)
				}
			})
		}
	}
}

// TestContainersWhoseEndNobodySaw: containers with policy Never do not run twice. Succeeded containers do not run again
// while the rest of their pod runs.
func TestContainersWhoseEndNobodySaw(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		policy, lost string
		code         int32 // exit code of a, -1 while a runs
		want         string
		phase        v1.PodPhase
	}{
		{"Never", "a", -1, "0", v1.PodRunning},
		{"Never", "", -1, "0", v1.PodFailed},
		{"Never", "a", 0, "0", v1.PodRunning},
		{"OnFailure", "a", 0, "0", v1.PodRunning},
		{"OnFailure", "a", -1, "1", v1.PodRunning},
		{"Always", "a", 0, "1", v1.PodRunning},
	} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			p, set := parse(t, "  restartPolicy: "+c.policy+"\n  containers: [{name: a, image: \"busybox:1\"}, {name: b, image: \"busybox:1\"}]")
			step := func(f *fixture) {
				w := newWorker(f.Manager, string(p.UID), FullName(p), desired{p, set}, &runtimeState{})
				for range 2 {
					w.step(t.Context())
				}
			}
			step(f)
			if c.code >= 0 {
				f.stub.Exit(f.status(t, p).Container("a").ID, c.code)
				if c.policy != "Always" {
					step(f)
				}
			}
			var before int
			_, _ = fmt.Sscan(f.started(), &before)
			if c.lost == "" {
				f.forget(t, p, true)
			} else {
				f.forget(t, p, false, c.lost)
			}
			f = f.next(t)
			step(f)
			var after int
			_, _ = fmt.Sscan(f.started(), &after)
			if got := fmt.Sprint(after - before); got != c.want {
				t.Errorf("got %s starts, want %s", got, c.want)
			}
			if phase := f.View(p, f.status(t, p)).Phase; c.want == "0" && c.lost == "" && phase != c.phase {
				t.Errorf("got phase %s", phase)
			}
		})
	}
}

// TestAStateThatCannotBeRead: a pod that must not run twice does not start with an unreadable state.
func TestAStateThatCannotBeRead(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.stub.AfterStart("a", func(id string) { f.stub.Exit(id, 0) })
	p, set := parse(t, "  restartPolicy: Never\n  containers: [{name: a, image: \"busybox:1\"}]")
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	f.forget(t, p, true)
	own, err := f.identify(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stateFile(f.o.Dirs, string(p.UID), own.key), []byte(`{"phase": "Succ`), 0o600); err != nil {
		t.Fatal(err)
	}
	before := f.started()
	f = f.next(t)
	if _, err := f.Up(deadline(t), p, set, true); err == nil || !strings.Contains(err.Error(), "read the pod's state") || f.started() != before {
		t.Errorf("got %v, %s starts after %s", err, f.started(), before)
	}
}

// TestGarbageKeepsTheEnd: garbage collection keeps the result of a finished pod while its manifest is in the directory
// of sync.
func TestGarbageKeepsTheEnd(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.stub.AfterStart("main", func(id string) { f.stub.Exit(id, 0) })
	directory := t.TempDir()
	text := strings.Replace(staticPod("a", "busybox:1"), "spec: {", "spec: {restartPolicy: Never, ", 1)
	set, err := manifest.Read(manifest.Options{}, strings.NewReader(text), "-")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(directory, "a.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := set.Pods[0].Pod
	if err := Prepare(p, directory, time.Now()); err != nil {
		t.Fatal(err)
	}
	p.Annotations[pod.FileAnnotation] = "a.yaml"
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	f.forget(t, p, true)
	if g, err := f.PlanGarbage(t.Context(), DefaultGCPolicy(), Sources{}); err != nil || len(g.Items) > 0 {
		t.Errorf("got %+v, %v", g, err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if g, err := f.PlanGarbage(t.Context(), DefaultGCPolicy(), Sources{}); err != nil || len(g.Items) != 2 {
		t.Errorf("without the manifest: got %+v, %v, want the directories", g, err)
	}
}

// TestProbesOfTheNextProcess: probes continue from the results of the previous process. A started container is not
// killed, and a ready container stays ready.
func TestProbesOfTheNextProcess(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	flag := filepath.Join(t.TempDir(), "flag")
	if err := os.WriteFile(flag, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	command := `{exec: {command: [sh, -c, "test -e ` + flag + `"]}, periodSeconds: 1, timeoutSeconds: 30, `
	p, set := parse(t, `
  containers: [{name: a, image: "busybox:1", startupProbe: `+command+`failureThreshold: 1}, readinessProbe: `+command+`failureThreshold: 1000}}]`)
	if _, _, err := f.Manager.Up(deadline(t), p, set, nil, Wait{Until: UntilReady}); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(flag); err != nil { // from now on both commands fail
		t.Fatal(err)
	}
	f = f.next(t)
	ctx := deadline(t)
	w := newWorker(f.Manager, string(p.UID), FullName(p), desired{p, set}, &runtimeState{})
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		w.step(ctx)
		if s := f.kept(string(p.UID)); !s.Ready || !s.Container("a").Started {
			t.Fatalf("got %+v", s)
		}
		_ = f.pause(ctx, poll)
	}
	id := f.status(t, p).Container("a").ID
	f.stub.Exit(id, 1)
	for f.status(t, p).Container("a").ID == id {
		w.step(ctx)
	}
	w.step(ctx)
	if s := f.kept(string(p.UID)); s.Ready || s.Container("a").Started {
		t.Errorf("another container counts as started: %+v", s)
	}
}

// TestFinishedPodsReleaseMemory: a pod that has ended, or is past its deadline, has no volumes in memory any more, and
// keeps the others.
func TestFinishedPodsReleaseMemory(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{"ended": "restartPolicy: Never", "past its deadline": "activeDeadlineSeconds: 60"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var later atomic.Int64
			f := newFixture(t, func(o *Options) { o.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) } })
			f.volumes.MountTmpfs = func(string, string) error { return nil }
			p, set := parse(t, "  "+spec+`
  containers: [{name: a, image: "busybox:1", volumeMounts: [{name: m, mountPath: /m}, {name: v, mountPath: /v}]}]
  volumes: [{name: m, emptyDir: {medium: Memory}}, {name: v, emptyDir: {}}]
`)
			if _, err := f.Up(deadline(t), p, set, false); err != nil {
				t.Fatal(err)
			}
			kept := func() (names []string) {
				for _, volume := range []string{"m", "v"} {
					if _, err := os.Stat(f.o.Dirs.Volume("u1", "empty-dir", volume)); err == nil {
						names = append(names, volume)
					}
				}
				return names
			}
			before := kept()
			if name == "ended" {
				f.stub.Exit(f.status(t, p).Container("a").ID, 0)
			}
			later.Store(int64(2 * time.Minute))
			for range 3 {
				if r := f.SyncPod(t.Context(), p, set, f.status(t, p)); r.Err != nil {
					t.Fatal(r.Err)
				}
			}
			if after := kept(); fmt.Sprint(before, after) != "[m v] [v]" {
				t.Errorf("volumes before and after: %v, %v", before, after)
			}
		})
	}
}
