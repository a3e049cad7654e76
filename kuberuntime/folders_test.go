package kuberuntime

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"
)

// needsRoot skips a test that mounts, and fails it where CI says that it can.
func needsRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("CRISHIM_REQUIRE_ENGINE") == "1":
		t.Fatal("not root, and CRISHIM_REQUIRE_ENGINE=1")
	default:
		t.Skip("only root may mount")
	}
}

const subPathPod = `
  containers: [{name: a, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /d, subPath: d}]}]
  volumes: [{name: v, emptyDir: {}}]
`

// TestRemoveKeepsWhatIsMountedInLogs has somebody mount a folder below a pod's logs.
func TestRemoveKeepsWhatIsMountedInLogs(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	f := newFixture(t)
	p, set := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, true); err != nil {
		t.Fatal(err)
	}
	other, at := t.TempDir(), filepath.Join(f.o.Dirs.PodLogs(p), "a")
	file := filepath.Join(other, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(other, at, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	if err := f.Remove(ctx, nil, f.status(t, p), nil); err == nil || !strings.Contains(err.Error(), "is still mounted") {
		t.Errorf("got %v, want that something is mounted", err)
	}
	garbage, err := f.PlanGarbage(ctx, DefaultGCPolicy(), Sources{AllReady: true})
	if err != nil || len(garbage.Items) != 2 || garbage.Items[0].Kind != "log folder" {
		t.Fatalf("got %+v, %v, want the pod's log folder and its own", garbage, err)
	}
	if err := f.Collect(ctx, garbage); err == nil || !strings.Contains(err.Error(), "is still mounted") {
		t.Errorf("got %v, want that something is mounted", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file below the mount: %v", err)
	}
}

// TestSubPathsEndWithThePod: they are mounted below the pod's folder, and what a run that was
// killed left is collected.
func TestSubPathsEndWithThePod(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	mounted := func(dir string) bool {
		t.Helper()
		text, err := os.ReadFile("/proc/self/mountinfo")
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(text), dir)
	}
	for name, end := range map[string]func(*fixture, *v1.Pod) error{
		"removed": func(f *fixture, p *v1.Pod) error { return f.Remove(t.Context(), p, f.status(t, p), nil) },
		"killed": func(f *fixture, p *v1.Pod) error {
			for _, c := range f.status(t, p).Containers {
				if err := errors.Join(f.service.stopContainer(t.Context(), c.ID, 0), f.DeleteContainer(t.Context(), c.ID)); err != nil {
					return err
				}
			}
			for _, s := range f.status(t, p).Sandboxes {
				if err := errors.Join(f.service.stopPodSandbox(t.Context(), s.GetId()), f.service.removePodSandbox(t.Context(), s.GetId())); err != nil {
					return err
				}
			}
			_, err := f.GarbageCollect(t.Context(), DefaultGCPolicy(), Sources{AllReady: true})
			return err
		},
	} {
		f := newFixture(t)
		dir := f.o.Dirs.Pod("u1")
		t.Cleanup(func() { _ = unix.Unmount(f.o.Dirs.SubPath("u1", "v", "a", 1), unix.MNT_DETACH) })
		p, set := parse(t, subPathPod)
		if _, err := f.Up(deadline(t), p, set, true); err != nil {
			t.Fatal(err)
		}
		if !mounted(f.o.Dirs.SubPath("u1", "v", "a", 1)) {
			t.Errorf("%s: the sub path is not mounted", name)
		}
		if err := end(f, p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := os.Lstat(dir); !errors.Is(err, os.ErrNotExist) || mounted(dir) {
			t.Errorf("%s: the pod's folder, or a mount in it, is still there: %v", name, err)
		}
	}
}
