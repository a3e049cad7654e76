package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

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
	set, err := manifest.Parse("test", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	set.Pods[0].UID = "u1"
	return set.Pods[0].Pod, set
}

func maker(t *testing.T) *Maker {
	t.Helper()
	return &Maker{Dirs: pod.Dirs{Root: t.TempDir()}, MountTmpfs: func(string, int64) error { return errors.New("not here") }}
}

// contents are the visible files below a folder with their modes.
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

// TestDataChangesAsAWhole updates a volume under an open reader of the old files.
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

func TestEmptyDir(t *testing.T) {
	t.Parallel()
	m := maker(t)
	var mounted []int64
	m.MountTmpfs = func(_ string, size int64) error { mounted = append(mounted, size); return nil }
	p, set := parse(t, head+"  volumes: [{name: v}, {name: m, emptyDir: {medium: Memory, sizeLimit: 1Mi}}]")
	made, err := m.Setup(p, set)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(made["v"].Path)
	if err != nil || info.Mode().Perm() != 0o777 {
		t.Errorf("got %v, %v, want a folder for everybody", info, err)
	}
	if diff := cmp.Diff([]int64{1 << 20}, mounted); diff != "" {
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
		t.Error("the pod's folder is still there")
	}
	for _, uid := range []string{"", "..", "a/b"} {
		if m.Teardown(uid) == nil {
			t.Errorf("removed %q", uid)
		}
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
			got := int64(-1)
			m := maker(t)
			m.Host.Memory = c.host << 20
			m.MountTmpfs = func(_ string, size int64) error { got = size; return nil }
			p, set := parse(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec:\n"+c.spec+"  volumes: [{name: v, emptyDir: {medium: Memory, "+c.volume+"}}]")
			if _, err := m.Setup(p, set); err != nil {
				t.Fatal(err)
			}
			if got != c.want<<20 {
				t.Errorf("got %d, want %d MiB", got, c.want)
			}
		})
	}
}

// TestSubPathMode: users other than root can write where they can write into the volume.
func TestSubPathMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	path, err := subPath(dir, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if want := 0o777 | fs.ModeSetgid | fs.ModeDir; info.Mode() != want {
		t.Errorf("got %s, want %s", info.Mode(), want)
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
	made := map[string]Made{"v": {Path: volume}, "ro": {Path: volume, ReadOnly: true}, "img": {Image: &v1.ImageVolumeSource{Reference: "data:1"}, ReadOnly: true}}
	expand := func(s string) string { return strings.ReplaceAll(s, "$(NAME)", "pod1") }
	ref := func(image string) string { return "sha256:" + image }
	mount := func(m v1.VolumeMount) (*runtimeapi.Mount, error) {
		list, err := Mounts(&v1.Container{VolumeMounts: []v1.VolumeMount{m}}, made, expand, ref)
		if err != nil {
			return nil, err
		}
		return list[0], nil
	}
	toContainer := v1.MountPropagationHostToContainer
	cases := []struct {
		name string
		in   v1.VolumeMount
		want *runtimeapi.Mount
	}{
		{"plain", v1.VolumeMount{Name: "v", MountPath: "/a"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: volume}},
		{"read-only", v1.VolumeMount{Name: "v", MountPath: "a", ReadOnly: true}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, Readonly: true}},
		{"of a read-only volume", v1.VolumeMount{Name: "ro", MountPath: "/a"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, Readonly: true}},
		{"propagation", v1.VolumeMount{Name: "v", MountPath: "/a", MountPropagation: &toContainer},
			&runtimeapi.Mount{ContainerPath: "/a", HostPath: volume, Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER}},
		{"sub path", v1.VolumeMount{Name: "v", MountPath: "/a", SubPath: "x/y"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: filepath.Join(volume, "x/y")}},
		{"sub path of a variable", v1.VolumeMount{Name: "v", MountPath: "/a", SubPathExpr: "$(NAME)"}, &runtimeapi.Mount{ContainerPath: "/a", HostPath: filepath.Join(volume, "pod1")}},
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
	}
	for _, sub := range []string{"link", "link/deeper", "../outside", "$(X)/../.."} {
		if got, err := mount(v1.VolumeMount{Name: "v", MountPath: "/a", SubPathExpr: sub}); err == nil {
			t.Errorf("%s leads to %s", sub, got.HostPath)
		}
	}
}

func TestParseMounts(t *testing.T) {
	t.Parallel()
	text := "1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / /r/pods/u1/volumes/m rw - tmpfs tmpfs rw\n3 1 0:2 / /r/pods/u1/with\\040space rw - tmpfs tmpfs rw\n4 1 0:2 / /r/pods/u10 rw - tmpfs tmpfs rw\n"
	want := []string{"/link/u1/volumes/m", "/link/u1/with space"}
	if diff := cmp.Diff(want, parseMounts(text, "/link/u1", "/r/pods/u1")); diff != "" {
		t.Error(diff)
	}
}
