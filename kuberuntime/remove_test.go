package kuberuntime

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// attempts lists the attempts of a container, the newest first: the number, and "dead" if the attempt does not run.
func (f *fixture) attempts(t *testing.T, p *v1.Pod, name string) string {
	t.Helper()
	var out []string
	for _, c := range f.status(t, p).Containers {
		if c.Name != name {
			continue
		}
		text := string(rune('0' + c.RestartCount))
		if !c.Running() {
			text += " dead"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestPruneKeepsTheNewestDeadAttempt: the newest dead attempt of an init container or sidecar is kept, also if a newer
// attempt runs. Back-offs, logs --previous and the last state need it.
func TestPruneKeepsTheNewestDeadAttempt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  initContainers: [{name: side, image: "busybox:1", restartPolicy: Always}]
  containers: [{name: a, image: "busybox:1"}]
`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, true); err != nil {
		t.Fatal(err)
	}
	step := func() SyncResult { return f.SyncPod(ctx, p, set, f.status(t, p)) }
	f.stub.Exit(f.status(t, p).Container("side").ID, 1)
	for range 2 {
		if r := step(); r.Err != nil {
			t.Fatal(r.Err)
		}
		if got := f.attempts(t, p, "side"); got != "1, 0 dead" {
			t.Fatalf("after a restart: got %q", got)
		}
	}
	f.stub.Exit(f.status(t, p).Container("side").ID, 1)
	if r := step(); !errors.Is(r.Err, ErrCrashLoopBackOff) {
		t.Errorf("after the second end: got %v, want a back-off", r.Err)
	}
	if got := f.attempts(t, p, "side"); got != "1 dead" {
		t.Errorf("after the second end: got %q, want the newest dead one only", got)
	}
}

// TestLogsGoWithTheirAttempt: removing an attempt removes its log, its rotated logs and its link, but only for pods of
// crishim.
func TestLogsGoWithTheirAttempt(t *testing.T) {
	t.Parallel()
	for _, ours := range []bool{true, false} {
		f := newFixture(t, func(o *Options) { o.Dirs.LegacyLogs = filepath.Join(filepath.Dir(o.Dirs.Root), "containers") })
		p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
		ctx := deadline(t)
		if _, err := f.Up(ctx, p, set, true); err != nil {
			t.Fatal(err)
		}
		first := f.status(t, p).Container("a").ID
		f.stub.Exit(first, 1)
		if r := f.SyncPod(ctx, p, set, f.status(t, p)); r.Err != nil {
			t.Fatal(r.Err)
		}
		second := f.status(t, p).Container("a").ID
		logs := filepath.Join(f.o.Dirs.PodLogs(p), "a")
		link := func(id string) string {
			return filepath.Join(f.o.Dirs.LegacyLogs, legacyLogName(p.Name, p.Namespace, "a", id))
		}
		for _, name := range []string{"0.log", "0.log.20260101-000000", "0.log.20260102-000000.gz", "1.log", "10.log"} {
			if err := os.WriteFile(filepath.Join(logs, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.MkdirAll(f.o.Dirs.LegacyLogs, 0o755); err != nil {
			t.Fatal(err)
		}
		for id, name := range map[string]string{first: "0.log", second: "1.log"} {
			if err := os.Remove(link(id)); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(logs, name), link(id)); err != nil {
				t.Fatal(err)
			}
		}
		if !ours {
			if err := os.Remove(recordPath(f.o.Dirs, "u1")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := f.GarbageCollect(ctx, GCPolicy{MaxPerContainer: 0, MaxContainers: -1}, Sources{}); err != nil {
			t.Fatal(err)
		}
		want := []string{"1.log", "10.log"}
		if !ours {
			want = []string{"0.log", "0.log.20260101-000000", "0.log.20260102-000000.gz", "1.log", "10.log"}
		}
		left, err := listDir(logs)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, left); diff != "" {
			t.Errorf("ours %t: %s", ours, diff)
		}
		links, err := listDir(f.o.Dirs.LegacyLogs)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(links, filepath.Base(link(first))) == ours || !slices.Contains(links, filepath.Base(link(second))) {
			t.Errorf("ours %t: links left: %v", ours, links)
		}
	}
}

// TestDeleteContainerRefusesARunningOne: the runtime would kill a running container.
func TestDeleteContainerRefusesARunningOne(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	a := f.status(t, p).Container("a")
	if err := f.DeleteContainer(ctx, a.ID); err == nil || !f.status(t, p).Container("a").Running() {
		t.Errorf("got %v, want a refusal", err)
	}
	f.stub.Exit(a.ID, 0)
	for range 2 { // removing a missing container succeeds
		if err := f.DeleteContainer(ctx, a.ID); err != nil {
			t.Error(err)
		}
	}
	if got := f.status(t, p).Container("a"); got != nil {
		t.Errorf("it is still there: %+v", got)
	}
}
