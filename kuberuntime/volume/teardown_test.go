package volume

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestRemoveAllKeepsWhatIsMounted removes a directory in which another directory is mounted.
func TestRemoveAllKeepsWhatIsMounted(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	dir, other := t.TempDir(), t.TempDir()
	file := filepath.Join(other, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := filepath.Join(dir, "logs", "mounted here")
	if err := os.MkdirAll(at, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := BindMount(other, at); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unmountBelow(dir); err != nil {
			t.Error(err)
		}
	})
	if err := RemoveAll(filepath.Join(dir, "logs")); err == nil || !strings.Contains(err.Error(), at+" is still mounted") {
		t.Errorf("got %v, want that something is mounted", err)
	}
	if _, err := os.Stat(file); err != nil {
		t.Errorf("the file below the mount: %v", err)
	}
}

// TestTeardownUnmounts unmounts stacked and nested mounts, and keeps the mounted files.
func TestTeardownUnmounts(t *testing.T) {
	t.Parallel()
	needsRoot(t)
	m := maker(t)
	other := t.TempDir()
	if err := os.MkdirAll(filepath.Join(other, "sub/deeper"), 0o755); err != nil {
		t.Fatal(err)
	}
	at := m.Dirs.SubPath("u1", "v", "main", 0)
	if err := os.MkdirAll(at, 0o750); err != nil {
		t.Fatal(err)
	}
	for _, mount := range []string{at, at, filepath.Join(at, "sub/deeper")} {
		if err := BindMount(other, mount); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount("", mount, "", unix.MS_PRIVATE, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Teardown("u1"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(other, "sub/deeper")); err != nil {
		t.Errorf("what was mounted: %v", err)
	}
	if _, err := os.Lstat(m.Dirs.Pod("u1")); err == nil {
		t.Error("the pod's directory is still there")
	}
}

// TestTeardownKeepsWhatItCannotUnmount runs in a user namespace where unmounting fails with EINVAL. The kernel returns
// the same error if nothing is mounted.
func TestTeardownKeepsWhatItCannotUnmount(t *testing.T) {
	needsRoot(t)
	if root := os.Getenv("CRISHIM_TEST_LOCKED_MOUNT"); root != "" {
		err := (&Maker{Dirs: pod.Dirs{Root: root}}).Teardown("u1")
		if err == nil || !strings.Contains(err.Error(), "mount") {
			t.Errorf("got %v, want that something is mounted", err)
		}
		return
	}
	m := maker(t)
	other, at := t.TempDir(), m.Dirs.Volume("u1", "empty-dir", "v")
	if err := os.WriteFile(filepath.Join(other, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(at, 0o750); err != nil {
		t.Fatal(err)
	}
	if err := BindMount(other, at); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "CRISHIM_TEST_LOCKED_MOUNT="+m.Dirs.Root)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{Size: 1}}, GidMappings: []syscall.SysProcIDMap{{Size: 1}},
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if _, err := os.Stat(filepath.Join(other, "file")); err != nil {
		t.Errorf("the file below the mount: %v", err)
	}
}
