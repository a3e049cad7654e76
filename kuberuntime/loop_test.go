package kuberuntime

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestWorkerRests: a pod whose deadline has passed leaves nothing to do, and is not looked
// at again and again.
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
	w := newWorker(f.Manager, string(p.UID), FullName(p), desired{p, set})
	if next, _ := w.step(t.Context()); next <= 0 || next > resync {
		t.Errorf("before the deadline: next look in %s", next)
	}
	late.Store(int64(time.Hour))
	for range 2 { // the first stops it
		if next, _ := w.step(t.Context()); next < retryPeriod {
			t.Errorf("after the deadline: next look in %s", next)
		}
	}
}

// looped is a fixture with a folder and a loop that runs over it.
type looped struct {
	*fixture
	t      *testing.T
	folder string
	stop   func()
}

func newLooped(t *testing.T) *looped {
	t.Helper()
	l := &looped{fixture: newFixture(t), t: t, folder: t.TempDir()}
	l.start()
	return l
}

func (l *looped) start() {
	l.t.Helper()
	loop, err := l.NewLoop(LoopOptions{Folder: l.folder, GC: DefaultGCPolicy()})
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
	tmp := filepath.Join(l.folder, ".tmp")
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Rename(tmp, filepath.Join(l.folder, name)); err != nil {
		l.t.Fatal(err)
	}
}

// until waits for the runtime's pods to be as wanted.
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

// TestLoop follows a folder through its life.
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
	if err := os.Remove(filepath.Join(l.folder, "b.yaml")); err != nil {
		t.Fatal(err)
	}
	l.write("c.yaml", staticPod("c", "busybox:1"))
	l.until("c, and b because the folder is not sound", others(running("a", "b", "c")))
	if err := os.Remove(filepath.Join(l.folder, "broken.yaml")); err != nil {
		t.Fatal(err)
	}
	before := l.until("b gone", others(running("a", "c")))

	l.stop()
	l.start()
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
	if _, err := l.NewLoop(LoopOptions{Folder: l.folder}); err == nil {
		t.Error("two loops took one folder")
	}
	if !FolderInUse(l.o.Dirs, l.folder) {
		t.Error("the folder does not count as in use")
	}
}
