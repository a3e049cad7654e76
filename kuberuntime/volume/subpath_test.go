package volume

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// sharedVolume creates a volume that has a directory and links, and a directory outside the volume.
func sharedVolume(t *testing.T) (volume, outside string) {
	t.Helper()
	dir := t.TempDir()
	volume, outside = filepath.Join(dir, "volume"), filepath.Join(dir, "outside")
	for _, d := range []string{outside, filepath.Join(volume, "d/deep")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for path, text := range map[string]string{filepath.Join(volume, "d/file"): "inside", filepath.Join(outside, "file"): "outside"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{
		"out": outside, "up": "../outside", "relative": "d", "round": "d/../d/./deep/..", "absolute": filepath.Join(volume, "d"),
		"d/up": "../..", "loop": "loop", "two": "relative/deep/../file", "new": "d/missing", "proc": "/proc/self/root",
	} {
		if err := os.Symlink(to, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(strings.Repeat("d/../", 800)+"d", filepath.Join(volume, "long")); err != nil {
		t.Fatal(err)
	}
	return volume, outside
}

func TestOpenBeneath(t *testing.T) {
	t.Parallel()
	volume, _ := sharedVolume(t)
	for sub, want := range map[string]string{
		"d": "d", "d/file": "d/file", "./d//deep/": "d/deep", ".": ".", "relative": "d", "relative/deep": "d/deep", "round": "d", "two": "d/file",
		"absolute": "d", "absolute/deep": "d/deep", "made/for/it": "made/for/it", "new": "d/missing",
		"out": "", "out/file": "", "up": "", "d/up": "", "d/up/outside": "", "loop": "", "long": "", "proc": "", "proc/etc": "", "d/file/x": "",
		"../outside": "", "d/../../outside": "", "/etc": "", "": "",
	} {
		fd, err := openBeneath(volume, sub)
		if err != nil {
			if want != "" {
				t.Errorf("%q: %v", sub, err)
			}
			continue
		}
		if got, err := os.Readlink(descriptor(fd)); err != nil || want == "" || got != filepath.Join(volume, want) {
			t.Errorf("%q: got %s, %v, want %q", sub, got, err, want)
		}
		if err := unix.Close(fd); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenBeneathNeverBlocks opens a FIFO and a socket. O_PATH does not wait for a peer.
func TestOpenBeneathNeverBlocks(t *testing.T) {
	t.Parallel()
	volume := t.TempDir()
	if err := unix.Mkfifo(filepath.Join(volume, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(volume, "socket")})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for _, name := range []string{"fifo", "socket"} {
		fd, err := openBeneath(volume, name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		unix.Close(fd)
	}
}

// TestErrorsOfSubPathsHideVariables: errors omit the values of variables, which may come from Secrets.
func TestErrorsOfSubPathsHideVariables(t *testing.T) {
	t.Parallel()
	volume, _ := sharedVolume(t)
	c := &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/a", SubPathExpr: "d/file/$(TOKEN)"}}}
	expand := func(text string) (string, error) { return strings.ReplaceAll(text, "$(TOKEN)", "hunter2"), nil }
	_, err := maker(t).Mounts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, c, map[string]Made{"v": {Path: volume}}, expand, nil)
	if !errors.Is(err, unix.ENOTDIR) || strings.Contains(err.Error(), "hunter2") || !strings.Contains(err.Error(), "$(TOKEN)") {
		t.Errorf("got %v, want the sub path as the manifest has it", err)
	}
}

// TestSubPathMode: a new sub path is writable for the same users as the volume.
func TestSubPathMode(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o777|fs.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	fd, err := openBeneath(dir, "a/b")
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, name := range []string{"a", "a/b"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if want := 0o777 | fs.ModeSetgid | fs.ModeDir; info.Mode() != want {
			t.Errorf("%s: got %s, want %s", name, info.Mode(), want)
		}
	}
}

// TestSubPathStays: a mounted sub path stays the same directory when a container replaces the directory in the volume.
// The next attempt can mount the same path or another one.
func TestSubPathStays(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	m := maker(t)
	volume, outside := sharedVolume(t)
	mount := func(sub string) string {
		t.Helper()
		c := &v1.Container{Name: "main", VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/a", SubPath: sub}}}
		mounts, err := m.Mounts(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u1"}}, c, map[string]Made{"v": {Path: volume}}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		return mounts[0].GetHostPath()
	}
	holds := func(path, want string) {
		t.Helper()
		if text, err := os.ReadFile(path); err != nil || string(text) != want {
			t.Errorf("%s: got %q, %v, want %q", path, text, err, want)
		}
	}
	at := mount("d")
	if !strings.HasPrefix(at, m.Dirs.Pod("u1")+"/") {
		t.Errorf("got %s, want a place that containers cannot change", at)
	}
	if err := os.Rename(filepath.Join(volume, "d"), filepath.Join(volume, "moved")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, filepath.Join(volume, "d")); err != nil {
		t.Fatal(err)
	}
	holds(at+"/file", "inside")
	if err := os.WriteFile(filepath.Join(volume, "moved/file"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	holds(mount("moved")+"/file", "changed") // the same directory: the mount is kept
	holds(mount("moved/file"), "changed")    // a file replaces a directory
	holds(mount("moved")+"/file", "changed")
	mounts, err := mountsBelow(m.Dirs.Pod("u1"))
	if err != nil || len(mounts) != 1 {
		t.Errorf("got mounts %v, %v, want one for the one volumeMount", mounts, err)
	}
	if err := m.Teardown("u1"); err != nil {
		t.Fatal(err)
	}
	holds(filepath.Join(volume, "moved/file"), "changed")
	holds(filepath.Join(outside, "file"), "outside")
	if _, err := os.Lstat(m.Dirs.Pod("u1")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the pod's directory: got %v, want that it is gone", err)
	}
}

// TestSubPathEndsNoMountElsewhere: a container's mount in a Bidirectional sub path also appears in the volume. It stays
// in the volume after the sub path is unmounted.
func TestSubPathEndsNoMountElsewhere(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	for _, replaced := range []bool{false, true} {
		m := maker(t)
		volume := t.TempDir()
		if err := MountTmpfs(volume, ""); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unmountBelow(volume); err != nil {
				t.Error(err)
			}
		})
		err := unix.Mount("", volume, "", unix.MS_SHARED, "")
		for _, dir := range []string{"d/below", "other"} {
			err = errors.Join(err, os.MkdirAll(filepath.Join(volume, dir), 0o755))
		}
		if err != nil {
			t.Fatal(err)
		}
		mode := v1.MountPropagationBidirectional
		mount := func(sub string) string {
			t.Helper()
			at, err := m.subPath(Made{Path: volume}, sub, m.Dirs.SubPath("u1", "v", "main", 0), &mode)
			if err != nil {
				t.Fatal(err)
			}
			return at
		}
		at := mount("d")
		if err := MountTmpfs(filepath.Join(at, "below"), ""); err != nil { // as the container does
			t.Fatal(err)
		}
		want := filepath.Join(volume, "d/below")
		if mounts, err := mountsBelow(want); err != nil || len(mounts) == 0 {
			t.Fatalf("got %v, %v; want it mounted in the volume", mounts, err)
		}
		if replaced {
			mount("other")
		} else if err := m.Teardown("u1"); err != nil {
			t.Fatal(err)
		}
		if mounts, err := mountsBelow(want); err != nil || len(mounts) == 0 {
			t.Errorf("replaced %t: got %v, %v; want it mounted in the volume still", replaced, mounts, err)
		}
		if err := m.Teardown("u1"); err != nil {
			t.Fatal(err)
		}
	}
}
