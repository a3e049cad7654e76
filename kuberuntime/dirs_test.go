package kuberuntime

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/kuberuntime/manifest"
)

// needsRoot skips a test that mounts, or fails it with CRISHIM_REQUIRE_ENGINE=1.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		test.Missing(t, "only root may mount")
	}
}

const subPathPod = `
  containers: [{name: a, image: "busybox:1", volumeMounts: [{name: v, mountPath: /v}, {name: v, mountPath: /d, subPath: d}]}]
  volumes: [{name: v, emptyDir: {}}]
`

// TestRemoveKeepsWhatIsMountedInLogs removes a pod while a directory is mounted below its logs.
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
	garbage, err := f.PlanGarbage(ctx, DefaultGCPolicy(), Sources{})
	if err != nil || len(garbage.Items) != 2 || garbage.Items[0].Kind != "log directory" {
		t.Fatalf("got %+v, %v, want the pod's log directory and its own", garbage, err)
	}
	if err := f.Collect(ctx, garbage); err == nil || !strings.Contains(err.Error(), "is still mounted") {
		t.Errorf("got %v, want that something is mounted", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file below the mount: %v", err)
	}
}

// TestSubPathsEndWithThePod: removing a pod unmounts its sub paths. Garbage collection does the same after the process
// was killed.
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
				_, err := f.runtime.StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.ID})
				if err := errors.Join(err, f.DeleteContainer(t.Context(), c.ID)); err != nil {
					return err
				}
			}
			for _, s := range f.status(t, p).Sandboxes {
				_, stopped := f.runtime.StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.GetId()})
				_, removed := f.runtime.RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.GetId()})
				if err := errors.Join(stopped, removed); err != nil {
					return err
				}
			}
			_, err := f.GarbageCollect(t.Context(), DefaultGCPolicy(), Sources{})
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
			t.Errorf("%s: the pod's directory, or a mount in it, is still there: %v", name, err)
		}
	}
}

// TestVolumesThatFailAreCollected: the directory of a pod that only has volumes is garbage, unless a process holds the
// pod's lock.
func TestVolumesThatFailAreCollected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set, err := manifest.Read(manifest.Options{}, strings.NewReader(`
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {k: secret}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers: [{name: a, image: "busybox:1"}]
  volumes: [{name: s, secret: {secretName: s}}, {name: c, configMap: {name: c}}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: c}
data: {k: v}
`), "-")
	if err != nil {
		t.Fatal(err)
	}
	delete(set.ConfigMaps, "default/c")
	p := set.Pods[0].Pod
	p.UID = "u1"
	if _, err := f.Up(deadline(t), p, set, false); err == nil || !strings.Contains(err.Error(), "ConfigMap default/c not found") {
		t.Fatalf("got %v, want that there is no such ConfigMap", err)
	}
	if _, err := os.Stat(filepath.Join(f.o.Dirs.Volume("u1", "secret", "s"), "k")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.GarbageCollect(deadline(t), DefaultGCPolicy(), Sources{}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.o.Dirs.Pod("u1")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the directory of a pod that never came up, with its secret: got %v, want that it is gone", err)
	}
}

// TestForeignPodsStayInTheirDirectories: the uid or name of another tool's pod may be a path.
func TestForeignPodsStayInTheirDirectories(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, _ := parse(t, `  containers: [{name: a, image: "busybox:1"}]`)
	outside := filepath.Join(filepath.Dir(f.o.Dirs.Root), "outside")
	victim := filepath.Join(filepath.Dir(f.o.Dirs.Logs), "victim", "y_u1")
	for _, dir := range []string{outside, victim} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.recordPod(t.Context(), p, f.status(t, p)); err != nil {
		t.Fatal(err)
	}
	record, err := os.ReadFile(recordPath(f.o.Dirs, "u1"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(outside, "pod.json"), record, 0o600); err != nil {
		t.Fatal(err)
	}
	const way = "../../outside"
	if _, err := f.Record(way); !errors.Is(err, errNoRecord) {
		t.Errorf("got %v, want that a directory outside is no pod's", err)
	}
	if err := AppendEvent(f.o.Dirs, Event{UID: way}); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(outside, "events.jsonl")); err == nil {
		t.Error("an event was written outside")
	}
	if err := os.WriteFile(filepath.Join(outside, "events.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if events, err := podEvents(f.o.Dirs, way); err != nil || len(events) > 0 {
		t.Errorf("got %v, %v, want no events", events, err)
	}
	if err := f.removeDirs(t.Context(), "u1"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(victim); err != nil {
		t.Errorf("a directory outside the logs: %v", err)
	}
}

// TestNoSecretInRecords: a pod's directory has values from Secrets in their volumes alone.
func TestNoSecretInRecords(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.volumes.MountTmpfs = func(string, string) error { return nil }
	set, err := manifest.Read(manifest.Options{}, strings.NewReader(`
apiVersion: v1
kind: Secret
metadata: {name: s}
stringData: {KEY: hunter2}
---
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  containers:
  - name: a
    image: "busybox:1"
    args: [$(ONE)]
    env: [{name: ONE, valueFrom: {secretKeyRef: {name: s, key: KEY}}}]
    envFrom: [{secretRef: {name: s}}]
    volumeMounts: [{name: s, mountPath: /s}]
  volumes: [{name: s, secret: {secretName: s}}]
`), "-")
	if err != nil {
		t.Fatal(err)
	}
	p := set.Pods[0].Pod
	p.UID = "u1"
	if _, err := f.Up(deadline(t), p, set, true); err != nil {
		t.Fatal(err)
	}
	var with []string
	read := 0
	if err := filepath.WalkDir(f.o.Dirs.Pod("u1"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(path)
		read++
		if strings.Contains(string(text), "hunter2") || strings.Contains(string(text), base64.StdEncoding.EncodeToString([]byte("hunter2"))) {
			with = append(with, path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if len(with) != 1 || !strings.HasPrefix(with[0], f.o.Dirs.Volume("u1", "secret", "s")+"/") || read < 3 {
		t.Errorf("of %d files %q have the value", read, with)
	}
	if _, err := f.Record("u1"); err != nil {
		t.Error(err)
	}
}
