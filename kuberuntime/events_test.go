package kuberuntime

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestEventsOfACrashLoop: as in a kubelet, a crash loop has an event for the end of each attempt and for each back-off.
func TestEventsOfACrashLoop(t *testing.T) {
	t.Parallel()
	at := time.Now()
	var mu sync.Mutex
	var told []Event
	var dirs pod.Dirs
	change := func(o *Options) {
		if dirs.Root != "" {
			o.Dirs = dirs
		}
		dirs = o.Dirs
		o.Now = func() time.Time { return at }
		o.Events = func(e Event) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, e)
			if err := AppendEvent(dirs, e); err != nil {
				t.Error(err)
			}
		}
	}
	f := newFixture(t, change)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	step := func() SyncResult {
		status := f.status(t, p)
		f.reportEnds(p, status)
		result := f.SyncPod(ctx, p, set, status)
		f.recordState(ctx, p, status, &result)
		return result
	}
	step()
	for range 5 {
		at = at.Add(time.Second)
		f.stub.Exit(f.status(t, p).Container("a").ID, 3)
		at = at.Add(900 * time.Millisecond)
		at = at.Add(step().RetryAfter)
		step()
		step()
	}
	var backOffs []string
	for _, e := range told {
		if e.Reason == eventBackOff {
			backOffs = append(backOffs, e.Message)
		}
	}
	var want []string
	for _, d := range []string{"10s", "20s", "40s", "1m20s"} {
		want = append(want, "back-off "+d+" restarting failed container a")
	}
	if diff := cmp.Diff(want, backOffs); diff != "" {
		t.Error(diff)
	}
	events, err := podEvents(dirs, "u1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range FoldEvents(events) {
		got = append(got, fmt.Sprintf("%s (x%d)", e.Reason, e.Count))
		if e.Reason == eventExited && e.Message != "exited with status 3 (Error)" {
			t.Errorf("got %+v", e)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff([]string{"BackOff (x4)", "Created (x6)", "Exited (x5)", "Pulled (x6)", "SandboxCreated (x1)", "Started (x6)"}, got); diff != "" {
		t.Error(diff)
	}
	// The state forgets collected containers.
	for _, c := range f.status(t, p).Containers[1:] {
		if err := f.DeleteContainer(ctx, c.ID); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if left := len(f.states.pods["u1"].ended); left > 1 {
		t.Errorf("%d ends are remembered of one container", left)
	}
	// A new process does not repeat the events.
	f.closeState("u1")
	before := len(told)
	step()
	if len(told) != before {
		t.Errorf("told again: %+v", told[before:])
	}
}

func TestFoldEvents(t *testing.T) {
	t.Parallel()
	event := func(at int, container, reason, message string) Event {
		return Event{Time: time.Unix(int64(at), 0), Container: container, Reason: reason, Message: message}
	}
	events := []Event{
		event(1, "a", EventCreated, "created container 1"),
		event(2, "b", EventCreated, "created container 2"),
		event(5, "a", EventStarted, "started container 1"),
		event(4, "a", eventExited, "exited with status 1 (Error): one"), // recorded late
		event(6, "a", EventCreated, "created container 3"),
		event(7, "a", eventExited, "exited with status 137 (OOMKilled)"),
		event(8, "a", eventExited, "exited with status 1 (Error): two"),
		event(9, "b", EventStarted, "started container 2"), // the container had exited before the call returned
		event(8, "b", eventExited, "exited with status 3 (Error)"),
		event(9, "a", EventUnhealthy, "readiness probe failed: x"),
		event(10, "a", EventUnhealthy, "liveness probe failed: x"),
	}
	var got []string
	for _, e := range FoldEvents(events) {
		got = append(got, fmt.Sprintf("%d-%d %s %s (x%d) %s", e.First.Unix(), e.Time.Unix(), e.Container, e.Reason, e.Count, e.Message))
	}
	want := []string{
		"2-2 b Created (x1) created container 2",
		"5-5 a Started (x1) started container 1",
		"1-6 a Created (x2) created container 3",
		"7-7 a Exited (x1) exited with status 137 (OOMKilled)",
		"5-8 a Exited (x2) exited with status 1 (Error): two",
		"9-9 b Started (x1) started container 2",
		"9-9 b Exited (x1) exited with status 3 (Error)",
		"9-9 a Unhealthy (x1) readiness probe failed: x",
		"10-10 a Unhealthy (x1) liveness probe failed: x",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestEventsOfManyWriters: a pod's event file has a size limit and drops the oldest events, also with concurrent
// writers.
func TestEventsOfManyWriters(t *testing.T) {
	t.Parallel()
	dirs := pod.Dirs{Root: t.TempDir()}
	if err := os.MkdirAll(dirs.Pod("u1"), 0o750); err != nil {
		t.Fatal(err)
	}
	write := func(writer string, count int) {
		for i := range count {
			e := Event{UID: "u1", Container: writer, Reason: eventFailed, Message: fmt.Sprint(i, " ", strings.Repeat("x", 900))}
			if err := AppendEvent(dirs, e); err != nil {
				t.Error(err)
			}
		}
	}
	// The concurrent events fit into one file, because a writer may write late.
	count := map[string]int{"alone": 500}
	write("alone", count["alone"])
	var writing sync.WaitGroup
	for w := range 8 {
		count[fmt.Sprint(w)] = 14
		writing.Go(func() { write(fmt.Sprint(w), 14) })
	}
	writing.Wait()
	events, err := podEvents(dirs, "u1")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(events) * 1000; n < halfEventLog || n > 2*halfEventLog {
		t.Errorf("got about %d bytes, want those of one file or two", n)
	}
	next := map[string]int{}
	for _, e := range events {
		var n int
		if _, err := fmt.Sscan(e.Message, &n); err != nil {
			t.Fatal(err)
		}
		if want, known := next[e.Container]; known && n != want {
			t.Errorf("writer %s: got event %d, want %d", e.Container, n, want)
		}
		next[e.Container] = n + 1
	}
	if diff := cmp.Diff(count, next); diff != "" {
		t.Error("the last events:", diff)
	}
}

// TestEndsOfWhatWasStarted: a failed start has its own event and is not reported as an end, although Docker sets a
// start time.
func TestEndsOfWhatWasStarted(t *testing.T) {
	t.Parallel()
	w := stateWriter{pods: map[string]*trackedPod{}}
	exited, at := runtimeapi.ContainerState_CONTAINER_EXITED, time.Unix(1000, 0)
	ends := w.newEnds(pod.Dirs{Root: t.TempDir()}, "u1", &pod.Status{Containers: []*pod.ContainerStatus{
		{ID: "a", State: exited, StartedAt: at, ExitCode: 3, Reason: "Error"},
		{ID: "b", State: exited, StartedAt: at, ExitCode: 127, Reason: "ContainerCannotRun"},
		{ID: "c", State: exited, StartedAt: at, ExitCode: 128, Reason: "StartError"},
		{ID: "d", State: exited},
	}})
	if len(ends) != 1 || ends[0].ID != "a" {
		t.Errorf("got %v", ends)
	}
}
