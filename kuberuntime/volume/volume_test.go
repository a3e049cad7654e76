package volume

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

const head = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: w, tier: front}}\nspec:\n  containers: [{name: main, image: busybox, resources: {limits: {memory: 8Mi}}}]\n"

const objects = `
---
apiVersion: v1
kind: ConfigMap
metadata: {name: conf}
data: {a: one, b: two}
binaryData: {c: AAE=}
---
apiVersion: v1
kind: Secret
metadata: {name: key}
stringData: {k: secret}
`

func parse(t *testing.T, text string) (*v1.Pod, *manifest.Set) {
	t.Helper()
	set, err := manifest.Read(manifest.Options{}, strings.NewReader(text), "-")
	if err != nil {
		t.Fatal(err)
	}
	set.Pods[0].UID = "u1"
	return set.Pods[0].Pod, set
}

func maker(t *testing.T) *Maker {
	t.Helper()
	m := &Maker{Dirs: pod.Dirs{Root: t.TempDir()}, MountTmpfs: func(string, string) error { return unix.EPERM }, BindMount: BindMount}
	t.Cleanup(func() {
		if err := unmountBelow(m.Dirs.Root); err != nil {
			t.Error(err)
		}
	})
	return m
}

// needsRoot skips a test that mounts, or fails it with CRISHIM_REQUIRE_ENGINE=1.
func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		test.Missing(t, "only root may mount")
	}
}

// contents returns the visible files below a directory with their modes and texts.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		top, err := filepath.EvalSymlinks(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		err = filepath.WalkDir(top, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			info, err := e.Info()
			name := filepath.Join(entry.Name(), strings.TrimPrefix(path, top))
			out[name] = info.Mode().Perm().String() + " " + string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return out
}

func TestDataVolumes(t *testing.T) {
	t.Parallel()
	const r, only = "-rw-r--r-- ", "-r-------- "
	cases := []struct {
		name, volume string
		want         map[string]string
	}{
		{"config map", "configMap: {name: conf}", map[string]string{"a": r + "one", "b": r + "two", "c": r + "\x00\x01"}},
		{"items", "configMap: {name: conf, items: [{key: a, path: deep/er/x, mode: 256}]}", map[string]string{"deep/er/x": only + "one"}},
		{"secret with a mode", "secret: {secretName: key, defaultMode: 256}", map[string]string{"k": only + "secret"}},
		{"optional and missing", "secret: {secretName: none, optional: true}", map[string]string{}},
		{"downward", "downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}, {path: mem, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}}]}",
			map[string]string{"labels": r + "app=\"w\"\ntier=\"front\"", "mem": r + "8"}},
		{"projected", "projected: {sources: [{configMap: {name: conf, items: [{key: b, path: b}]}}, {secret: {name: key}}]}", map[string]string{"b": r + "two", "k": r + "secret"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := maker(t)
			p, set := parse(t, head+"  volumes: [{name: v, "+c.volume+"}]"+objects)
			made, err := m.Setup(p, set)
			if err != nil {
				t.Fatal(err)
			}
			if !made["v"].ReadOnly {
				t.Error("can be written")
			}
			if diff := cmp.Diff(c.want, contents(t, made["v"].Path)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestDataChangesAsAWhole: an update replaces all files of a volume and removes the old ones. Unchanged files are not
// written again.
func TestDataChangesAsAWhole(t *testing.T) {
	t.Parallel()
	m := maker(t)
	p, set := parse(t, head+"  volumes: [{name: v, configMap: {name: conf}}]"+objects)
	made, err := m.Setup(p, set)
	if err != nil {
		t.Fatal(err)
	}
	dir := made["v"].Path
	before, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(p, set); err != nil {
		t.Fatal(err)
	}
	if again, _ := os.Readlink(filepath.Join(dir, dataLink)); again != before {
		t.Error("written again without a change")
	}
	set.ConfigMaps["default/conf"].Data = map[string]string{"a": "new", "d": "more"}
	set.ConfigMaps["default/conf"].BinaryData = nil
	if _, err := m.Setup(p, set); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "-rw-r--r-- new", "d": "-rw-r--r-- more"}
	if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
		t.Error(diff)
	}
	if _, err := os.Stat(filepath.Join(dir, before)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old files are still there: %v", err)
	}
}

// TestDataVolumeChangedFromInside: a container that can mount changes its read-only volume. Setup then reads, removes
// and changes nothing outside the volume, and does not block.
func TestDataVolumeChangedFromInside(t *testing.T) {
	t.Parallel()
	m := maker(t)
	p, set := parse(t, head+"  securityContext: {fsGroup: 1234}\n  volumes: [{name: v, configMap: {name: conf}}]"+objects)
	made, err := m.Setup(p, set)
	if err != nil {
		t.Fatal(err)
	}
	dir := made["v"].Path
	outside := t.TempDir()
	file := filepath.Join(outside, "a")
	if err := os.WriteFile(file, []byte("outside"), 0o600); err != nil {
		t.Fatal(err)
	}
	present, err := os.Readlink(filepath.Join(dir, dataLink))
	if err != nil {
		t.Fatal(err)
	}
	away, err := filepath.Rel(dir, outside)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func() error{
		"a pipe": func() error { return unix.Mkfifo(filepath.Join(dir, present, "a"), 0o440) },
		"a link": func() error { return os.Symlink(file, filepath.Join(dir, present, "a")) },
		"a huge file": func() error {
			return errors.Join(os.WriteFile(filepath.Join(dir, present, "a"), nil, 0o440), os.Truncate(filepath.Join(dir, present, "a"), 4<<40))
		},
		"the data elsewhere": func() error {
			return errors.Join(os.Remove(filepath.Join(dir, dataLink)), os.Symlink(away, filepath.Join(dir, dataLink)))
		},
	} {
		if present, err = os.Readlink(filepath.Join(dir, dataLink)); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, present, "a")); err != nil {
			t.Fatal(err)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Setup(p, set); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := map[string]string{"a": "-rw-r--r-- one", "b": "-rw-r--r-- two", "c": "-rw-r--r-- \x00\x01"}
		if diff := cmp.Diff(want, contents(t, dir)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		text, err := os.ReadFile(file)
		if err != nil || string(text) != "outside" {
			t.Fatalf("%s: the file outside: got %q, %v", name, text, err)
		}
	}
	for name, change := range map[string]func(present string) error{
		"another name of the data": func(present string) error {
			return errors.Join(os.Remove(filepath.Join(dir, dataLink)), os.Symlink("./"+present, filepath.Join(dir, dataLink)))
		},
		"a directory instead of the link": func(string) error {
			return errors.Join(os.Remove(filepath.Join(dir, dataLink)), os.MkdirAll(filepath.Join(dir, dataLink, "full"), 0o750))
		},
		"a directory in the way": func(present string) error {
			return errors.Join(os.Remove(filepath.Join(dir, present, "a")), os.MkdirAll(filepath.Join(dir, "..data_tmp", "full"), 0o750))
		},
	} {
		present, err := os.Readlink(filepath.Join(dir, dataLink))
		if err != nil {
			t.Fatal(err)
		}
		if err := change(present); err != nil {
			t.Fatal(err)
		}
		if _, err := m.Setup(p, set); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if names := slices.Sorted(maps.Keys(contents(t, dir))); !slices.Equal(names, []string{"a", "b", "c"}) {
			t.Errorf("%s: got %q", name, names)
		}
	}
	if err := os.Remove(filepath.Join(dir, "b")); err != nil { // as if the process had ended before linkNames
		t.Fatal(err)
	}
	if _, err := m.Setup(p, set); err != nil {
		t.Fatal(err)
	}
	if names := slices.Sorted(maps.Keys(contents(t, dir))); !slices.Equal(names, []string{"a", "b", "c"}) {
		t.Errorf("after a missing link: got %q", names)
	}
	entries, err := filepath.Glob(filepath.Join(dir, dataPrefix+"*"))
	if err != nil || len(entries) != 1 {
		t.Errorf("got %v, %v, want the present files alone", entries, err)
	}
}

func TestEmptyDir(t *testing.T) {
	t.Parallel()
	m := maker(t)
	var mounted []string
	m.MountTmpfs = func(_, options string) error { mounted = append(mounted, options); return nil }
	p, set := parse(t, head+"  securityContext: {fsGroup: 1234}\n  volumes: [{name: v}, {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]")
	made, err := m.Setup(p, set)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(made["v"].Path)
	if err != nil || info.Mode() != 0o777|fs.ModeDir|fs.ModeSetgid || info.Sys().(*syscall.Stat_t).Gid != 1234 {
		t.Errorf("got %v, %v, want a directory for everybody that passes the group on", info, err)
	}
	if diff := cmp.Diff([]string{"mode=2777,gid=1234,size=1048576"}, mounted); diff != "" {
		t.Error(diff)
	}
	file := filepath.Join(made["v"].Path, "kept")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(p, set); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("a second Setup lost a file")
	}
	if err := m.Teardown("u1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(m.Dirs.Pod("u1")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("the pod's directory is still there")
	}
	for _, uid := range []string{"", "..", "a/b"} {
		if m.Teardown(uid) == nil {
			t.Errorf("removed %q", uid)
		}
	}
}

// TestSecretsAreInMemory: Secrets are on a tmpfs, with noswap if the kernel supports it. Without the right to mount
// they are on disk, with a warning. A second Setup keeps their place.
func TestSecretsAreInMemory(t *testing.T) {
	t.Parallel()
	const volumes = "  volumes: [{name: c, configMap: {name: conf}}, {name: s, secret: {secretName: key}}, {name: d, downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}}, {name: p, projected: {sources: [{secret: {name: key}}]}}]"
	p, set := parse(t, head+volumes+objects)
	for _, c := range []struct {
		name   string
		answer map[string]error
		want   string
		warned int
	}{
		{"new kernel", nil, "s mode=0755,noswap d mode=0755,noswap p mode=0755,noswap", 0},
		{"old kernel", map[string]error{"mode=0755,noswap": unix.EINVAL}, "s mode=0755 d mode=0755 p mode=0755", 0},
		{"no root", map[string]error{"mode=0755,noswap": unix.EPERM}, "", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m, warned := maker(t), 0
			var mounted []string
			m.Warn = func(*v1.Pod, string, ...any) { warned++ }
			m.MountTmpfs = func(dir, options string) error {
				if c.answer[options] == nil {
					mounted = append(mounted, filepath.Base(dir)+" "+options)
				}
				return c.answer[options]
			}
			for range 2 { // the second finds existing files
				if _, err := m.Setup(p, set); err != nil {
					t.Fatal(err)
				}
			}
			if got := strings.Join(mounted, " "); got != c.want || warned != c.warned {
				t.Errorf("got %q and %d warnings, want %q and %d", got, warned, c.want, c.warned)
			}
		})
	}
}

// TestFinishedPodsHoldNoMemory: Release removes in-memory volumes and Secrets. Other volumes stay until the pod is
// deleted.
func TestFinishedPodsHoldNoMemory(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	m := maker(t)
	m.MountTmpfs = MountTmpfs
	p, set := parse(t, head+"  volumes: [{name: v}, {name: m, emptyDir: {medium: Memory}}, {name: c, configMap: {name: conf}}, {name: s, secret: {secretName: key}}]"+objects)
	made, err := m.Setup(p, set)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := m.Release(p); err != nil {
			t.Fatal(err)
		}
	}
	if mounts, err := mountsBelow(m.Dirs.Root); err != nil || len(mounts) > 0 {
		t.Errorf("still mounted: %v, %v", mounts, err)
	}
	for name, stays := range map[string]bool{"v": true, "c": true, "m": false, "s": false} {
		if _, err := os.Stat(made[name].Path); (err == nil) != stays {
			t.Errorf("volume %s: %v", name, err)
		}
	}
}

// TestEmptyDirInterrupted: the directory gets its name only after its mode and group are set. An interrupted call is
// repeated by the next one.
func TestEmptyDirInterrupted(t *testing.T) {
	t.Parallel()
	m := maker(t)
	p, set := parse(t, head+"  securityContext: {fsGroup: 1234}\n  volumes: [{name: v}]")
	dir := m.Dirs.Volume("u1", "empty-dir", "v")
	if err := os.MkdirAll(filepath.Join(filepath.Dir(dir), ".v"), 0o700); err != nil { // left by an interrupted call
		t.Fatal(err)
	}
	events, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(events)
	if _, err := unix.InotifyAddWatch(events, filepath.Dir(dir), unix.IN_ATTRIB|unix.IN_CREATE|unix.IN_MOVED_TO); err != nil {
		t.Fatal(err)
	}
	made, err := m.Setup(p, set)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(made["v"].Path)
	if err != nil || info.Mode() != 0o777|fs.ModeDir|fs.ModeSetgid || info.Sys().(*syscall.Stat_t).Gid != 1234 {
		t.Errorf("got %v, %v, want a directory for everybody that passes the group on", info, err)
	}
	buf := make([]byte, 16<<10)
	n, err := unix.Read(events, buf)
	if err != nil {
		t.Fatal(err)
	}
	there := false
	for rest := buf[:n]; len(rest) > 0; {
		mask, size := binary.NativeEndian.Uint32(rest[4:]), binary.NativeEndian.Uint32(rest[12:])
		name := strings.TrimRight(string(rest[16:16+size]), "\x00")
		rest = rest[16+size:]
		if name != "v" {
			continue
		}
		if there && mask&unix.IN_ATTRIB != 0 {
			t.Error("the mode or group of the directory was set when it was there already")
		}
		there = true
	}
	if !there {
		t.Error("nothing was seen of the directory")
	}
}

func TestTmpfsSize(t *testing.T) {
	t.Parallel()
	const limit, init = "  containers: [{name: main, image: busybox, resources: {limits: {memory: 8Mi}}}]\n", "  initContainers: [{name: i, image: busybox, resources: {limits: {memory: %}}}]\n"
	cases := []struct {
		name, spec, volume string
		host               int64
		want               int64 // MiB
	}{
		{"the host's memory", "  containers: [{name: main, image: busybox}]\n", "", 64, 64},
		{"the pod's", limit, "", 64, 8},
		{"the volume's", limit, "sizeLimit: 4Mi", 64, 4},
		{"the volume's is more than the pod's", limit, "sizeLimit: 16Mi", 64, 8},
		{"an init container needs more", limit + strings.Replace(init, "%", "12Mi", 1), "", 64, 12},
		{"a sidecar needs more", limit + strings.Replace(strings.Replace(init, "%", "12Mi", 1), "busybox", "busybox, restartPolicy: Always", 1), "", 64, 20},
		{"one without a limit", limit + "  initContainers: [{name: i, image: busybox}]\n", "", 64, 64},
		{"nothing known", "  containers: [{name: main, image: busybox}]\n", "", 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := ""
			m := maker(t)
			m.Host.Memory = c.host << 20
			m.MountTmpfs = func(_, options string) error { got = options; return nil }
			p, set := parse(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n"+c.spec+"  volumes: [{name: v, emptyDir: {medium: Memory, "+c.volume+"}}]")
			if _, err := m.Setup(p, set); err != nil {
				t.Fatal(err)
			}
			want := "mode=0777"
			if c.want > 0 {
				want += fmt.Sprintf(",size=%d", c.want<<20)
			}
			if got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestHostPath(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "file")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	cases := []struct {
		path string
		kind v1.HostPathType
		ok   bool
	}{
		{dir, v1.HostPathUnset, true}, {filepath.Join(dir, "none"), v1.HostPathUnset, true},
		{dir, v1.HostPathDirectory, true}, {plain, v1.HostPathDirectory, false}, {filepath.Join(dir, "none"), v1.HostPathDirectory, false},
		{plain, v1.HostPathFile, true}, {dir, v1.HostPathFile, false},
		{filepath.Join(dir, "made"), v1.HostPathDirectoryOrCreate, true}, {filepath.Join(dir, "madefile"), v1.HostPathFileOrCreate, true},
		{"/dev/null", v1.HostPathCharDev, true}, {"/dev/null", v1.HostPathBlockDev, false}, {plain, v1.HostPathSocket, false},
	}
	for _, c := range cases {
		err := checkHostPath(&v1.HostPathVolumeSource{Path: c.path, Type: &c.kind})
		if (err == nil) != c.ok {
			t.Errorf("%s as %q: got %v", c.path, c.kind, err)
		}
	}
	// A container that can write to the directory may have created a link there.
	link, outside, kind := filepath.Join(dir, "link"), filepath.Join(dir, "outside"), v1.HostPathFileOrCreate
	if err := os.Symlink(outside, link); err != nil {
		t.Fatal(err)
	}
	_ = checkHostPath(&v1.HostPathVolumeSource{Path: link, Type: &kind})
	if _, err := os.Lstat(outside); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the file behind a link is made: %v", err)
	}
	missing := filepath.Join(dir, "none", "file")
	if err := checkHostPath(&v1.HostPathVolumeSource{Path: missing, Type: &kind}); err == nil || err.Error() != "open "+missing+": no such file or directory" {
		t.Errorf("got %v", err)
	}
}

func TestMounts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	outside := filepath.Join(dir, "outside")
	volume := filepath.Join(dir, "volume")
	for _, d := range []string{outside, volume, filepath.Join(volume, "pod1")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(outside, filepath.Join(volume, "link")); err != nil {
		t.Fatal(err)
	}
	m := maker(t)
	m.BindMount = func(string, string) error { return unix.EPERM } // as for a user other than root
	made := map[string]Made{"v": {Path: volume}, "own": {Path: volume, Relabel: true}, "ro": {Path: volume, ReadOnly: true}, "img": {Image: &v1.ImageVolumeSource{Reference: "data:1"}, ReadOnly: true}}
	expand := func(s string) (string, error) { return strings.ReplaceAll(s, "$(NAME)", "pod1"), nil }
	ref := func(image string) string { return "sha256:" + image }
	mount := func(at v1.VolumeMount) (*runtimeapi.Mount, error) {
		list, err := m.Mounts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{at}}, made, expand, ref)
		if err != nil {
			return nil, err
		}
		return list[0], nil
	}
	toContainer, recursive := v1.MountPropagationHostToContainer, v1.RecursiveReadOnlyEnabled
	cases := []struct {
		name string
		in   v1.VolumeMount
		want *runtimeapi.Mount
	}{
		{"plain", v1.VolumeMount{Name: "v", MountPath: "/a"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: volume}},
		{"labelled", v1.VolumeMount{Name: "own", MountPath: "/a"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, SelinuxRelabel: true}},
		{"read-only", v1.VolumeMount{Name: "v", MountPath: "a", ReadOnly: true}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, Readonly: true}},
		{"of a read-only volume", v1.VolumeMount{Name: "ro", MountPath: "/a"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, Readonly: true}},
		{"read-only all the way down", v1.VolumeMount{Name: "v", MountPath: "/a", ReadOnly: true, RecursiveReadOnly: &recursive},
			&runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, Readonly: true, RecursiveReadOnly: true}},
		{"propagation", v1.VolumeMount{Name: "v", MountPath: "/a", MountPropagation: &toContainer},
			&runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}},
		{"sub path without root", v1.VolumeMount{Name: "ro", MountPath: "/a", SubPath: "x/y"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: filepath.Join(volume, "x/y"), Readonly: true}},
		{"sub path of a variable", v1.VolumeMount{Name: "ro", MountPath: "/a", SubPathExpr: "$(NAME)"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: filepath.Join(volume, "pod1"), Readonly: true}},
		{"image", v1.VolumeMount{Name: "img", MountPath: "/a", SubPath: "s"},
			&runtimeapi.Mount{ContainerPath: "/a", Readonly: true, Image: &runtimeapi.ImageSpec{Image: "sha256:data:1", UserSpecifiedImage: "data:1"}, ImageSubPath: "s"}},
	}
	for _, c := range cases {
		got, err := mount(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if diff := cmp.Diff(c.want, got, protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
		// Values that only the runtime or the container's variables know stay as written.
		want := proto.Clone(c.want).(*runtimeapi.Mount)
		want.HostPath = strings.ReplaceAll(want.HostPath, "pod1", "$(NAME)")
		if want.Image != nil {
			want.Image.Image = want.Image.UserSpecifiedImage
		}
		planned := PlanMounts(&v1.Container{VolumeMounts: []v1.VolumeMount{c.in}}, made)
		if diff := cmp.Diff(want, planned[0], protocmp.Transform()); diff != "" {
			t.Errorf("%s, planned: %s", c.name, diff)
		}
	}
	if got, err := mount(v1.VolumeMount{Name: "v", MountPath: "/a", SubPathExpr: "$(NAME)"}); !errors.Is(err, errNoMount) || strings.Contains(err.Error(), "pod1") {
		t.Errorf("without root: got %v, %v, want a sentence without the variable's value", got, err)
	}
}

// TestOwnVolumesAreRelabelled: volumes that crishim creates get an SELinux label, directories of the host never.
func TestOwnVolumesAreRelabelled(t *testing.T) {
	t.Parallel()
	var p v1.Pod
	sources := map[string]v1.VolumeSource{
		"hostPath": {HostPath: &v1.HostPathVolumeSource{Path: "/srv"}}, "image": {Image: &v1.ImageVolumeSource{}},
		"emptyDir": {EmptyDir: &v1.EmptyDirVolumeSource{}}, "configMap": {ConfigMap: &v1.ConfigMapVolumeSource{}}, "secret": {Secret: &v1.SecretVolumeSource{}},
		"projected": {Projected: &v1.ProjectedVolumeSource{}}, "claim": {PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}, "downwardAPI": {DownwardAPI: &v1.DownwardAPIVolumeSource{}},
	}
	for name, source := range sources {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: name, VolumeSource: source})
	}
	for name, made := range maker(t).Plan(&p) {
		if want := name != "hostPath" && name != "image"; made.Relabel != want {
			t.Errorf("%s: got %v, want %v", name, made.Relabel, want)
		}
	}
}

// TestClaimsGetTheGroup changes the files of a claim that another pod has written, by the pod's fsGroup and its policy.
func TestClaimsGetTheGroup(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "giving files to another group needs root")
	}
	for _, test := range []struct {
		name       string
		policy     v1.PodFSGroupChangePolicy
		readOnly   bool
		rootChange func(dir string) error // of an earlier pod
		changed    bool
	}{
		{"a new group", v1.FSGroupChangeAlways, false, nil, true},
		{"a new group of the directory", v1.FSGroupChangeOnRootMismatch, false, nil, true},
		{"the group of the directory", v1.FSGroupChangeOnRootMismatch, false, func(dir string) error { return openTo(dir, new(int64(1234))) }, false},
		{"another mode of the directory", v1.FSGroupChangeOnRootMismatch, false, func(dir string) error { return os.Chown(dir, -1, 1234) }, true},
		{"the group of the directory, always", v1.FSGroupChangeAlways, false, func(dir string) error { return openTo(dir, new(int64(1234))) }, true},
		{"a read-only claim", v1.FSGroupChangeAlways, true, nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m, claims := maker(t), t.TempDir()
			p, set := parse(t, head+"  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}}\n")
			p.Annotations[pod.VolumeDirAnnotation] = claims
			p.Spec.SecurityContext.FSGroup, p.Spec.SecurityContext.FSGroupChangePolicy = new(int64(1234)), &test.policy
			p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = test.readOnly
			outside, dir := filepath.Join(t.TempDir(), "outside"), filepath.Join(claims, "default", "data")
			err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o700), os.WriteFile(filepath.Join(dir, "sub", "file"), nil, 0o600),
				os.WriteFile(outside, nil, 0o600), os.Symlink(outside, filepath.Join(dir, "link")))
			if err == nil && test.rootChange != nil {
				err = test.rootChange(dir)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := m.Setup(p, set); err != nil {
				t.Fatal(err)
			}
			interrupted, cancel := context.WithCancel(t.Context())
			cancel()
			if err := m.OwnClaims(interrupted, p); !errors.Is(err, context.Canceled) {
				t.Errorf("interrupted: got %v", err)
			}
			if info, err := os.Stat(filepath.Join(dir, "sub", "file")); err != nil || info.Mode() != 0o600 {
				t.Errorf("interrupted: got %v, %v", info, err)
			}
			if err := m.OwnClaims(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for path, modes := range map[string][2]string{ // before and after
				outside:                           {"-rw------- 0", "-rw------- 0"},
				filepath.Join(dir, "sub"):         {"drwx------ 0", "dgrwxrwx--- 1234"},
				filepath.Join(dir, "sub", "file"): {"-rw------- 0", "-rw-rw---- 1234"},
			} {
				info, err := os.Lstat(path)
				if err != nil {
					t.Fatal(err)
				}
				want := modes[0]
				if test.changed {
					want = modes[1]
				}
				if got := fmt.Sprint(info.Mode(), " ", info.Sys().(*syscall.Stat_t).Gid); got != want {
					t.Errorf("%s: got %s, want %s", path, got, want)
				}
			}
		})
	}
}

// ending is a context that ends after a number of looks at it.
type ending struct {
	context.Context
	left int
}

func (e *ending) Err() error {
	if e.left--; e.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestClaimAfterAnInterrupt: OnRootMismatch changes the files that an interrupted walk has left.
func TestClaimAfterAnInterrupt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for i := range 5 {
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	group := int64(os.Getgid())
	if err := ownClaim(&ending{t.Context(), 3}, dir, group, false); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: got %v", err)
	}
	if err := ownClaim(t.Context(), dir, group, false); err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		if info, err := os.Stat(filepath.Join(dir, strconv.Itoa(i))); err != nil || info.Mode() != 0o660 {
			t.Errorf("%d: got %v, %v", i, info, err)
		}
	}
}

// TestOwnLeavesWhatIsRight: the owner's special bits survive where the group is right, and none go to a file that is new
// under its name.
func TestOwnLeavesWhatIsRight(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	right, wrong := filepath.Join(dir, "right"), filepath.Join(dir, "wrong")
	root, err := os.OpenRoot(dir)
	err = errors.Join(err, os.WriteFile(right, nil, 0o660), os.Chmod(right, 0o760|fs.ModeSetuid), os.WriteFile(wrong, nil, 0o600), os.Chmod(wrong, 0o700|fs.ModeSetuid))
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	if err := own(t.Context(), root, int64(os.Getegid()), 0o660); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{right: "urwxrw----", wrong: "-rwxrw----"} {
		if info, err := os.Lstat(path); err != nil || info.Mode().String() != want {
			t.Errorf("%s: got %v, %v, want %s", path, info.Mode(), err, want)
		}
	}
}

// TestClaim: the directory of a claim is outside the pod's directory, is writable for every user, and keeps its files.
func TestClaim(t *testing.T) {
	t.Parallel()
	m, claims := maker(t), t.TempDir()
	p, set := parse(t, head+"  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]\n---\n{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: data}}\n")
	p.Annotations[pod.VolumeDirAnnotation] = claims
	p.Spec.SecurityContext.FSGroup = new(int64(os.Getegid()))
	dir := filepath.Join(claims, "default", "data")
	var pods sync.WaitGroup
	for range 10 { // concurrent pods
		pods.Go(func() {
			made, err := m.Setup(p, set)
			if diff := cmp.Diff(map[string]Made{"v": {Path: dir, Relabel: true}}, made); diff != "" || err != nil {
				t.Error(diff, err)
			}
		})
	}
	pods.Wait()
	info, err := os.Stat(dir)
	if err != nil || info.Mode() != fs.ModeDir|fs.ModeSetgid|0o777 {
		t.Errorf("got %v, %v", info, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(p, set); err != nil {
		t.Error(err)
	}
	if err := errors.Join(m.Release(p), m.Teardown(string(p.UID))); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "kept")); err != nil || string(text) != "data" {
		t.Errorf("got %q, %v", text, err)
	}
	p.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	if made := m.Plan(p)["v"]; !made.ReadOnly {
		t.Error("a claim that is read-only can be written")
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.Setup(p, set); err == nil {
		t.Error("a file is taken for the directory of a claim")
	}
}
