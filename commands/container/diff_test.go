package container

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
)

// TestChanges compares the directories of an overlay: two layers, and files that a container added, changed and
// deleted. Links out of the directories are not followed.
func TestChanges(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "needs root to make whiteouts")
	}
	base := t.TempDir()
	write := func(paths ...string) {
		for _, p := range paths {
			p = filepath.Join(base, p)
			if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(p, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	remove := func(paths ...string) {
		for _, p := range paths {
			write(p)
			p = filepath.Join(base, p)
			if err := os.Remove(p); err != nil {
				t.Fatal(err)
			}
			if err := unix.Mknod(p, unix.S_IFCHR|0o600, 0); err != nil {
				t.Skip("this host forbids it: ", err)
			}
		}
	}
	hide := func(dir string) {
		if err := unix.Setxattr(filepath.Join(base, dir), "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			t.Skip("this host forbids it: ", err)
		}
	}
	write("low/etc/a", "low/etc/b", "low/etc/gone", "low/var/x", "low/opt/old", "low/opt/same", "mid/etc/c", "mid/opt/new")
	remove("mid/etc/gone")
	hide("mid/opt")
	write("up/etc/a", "up/etc/d", "up/etc/gone", "up/opt/old", "up/opt/new", "up/var/y", "up/var/x")
	hide("up/var")
	remove("up/etc/b", "up/etc/never")
	if err := os.Symlink("/etc", filepath.Join(base, "up/out")); err != nil {
		t.Fatal(err)
	}
	var got []string
	// The runtime creates files and directories as mount points.
	write("low/run/x", "up/run/secrets/token", "up/etc/hosts", "up/tmp/written", "up/zz\xff/no UTF-8")
	for _, dir := range []string{"up/run/cache/deep", "up/mnt", "low/owned", "up/owned", "up/emptied"} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write("low/emptied/x")
	hide("up/emptied")
	if err := os.Chmod(filepath.Join(base, "up/owned"), 0o700); err != nil {
		t.Fatal(err)
	}
	o := containerd.Overlay{
		Upper: filepath.Join(base, "up"), Lower: []string{filepath.Join(base, "mid"), filepath.Join(base, "low")},
		Mounts: []string{"/etc/hosts", "/run/secrets/token", "/run/cache/deep", "/mnt", "/tmp"},
	}
	err := changes(t.Context(), o, func(kind, path string) error {
		got = append(got, kind+" "+path)
		return nil
	})
	want := []string{
		"C /emptied", "C /etc", "C /etc/a", "D /etc/b", "A /etc/d", "A /etc/gone", "C /opt", "C /opt/new", "A /opt/old", "A /out",
		"C /owned", "A /tmp", "A /tmp/written", "C /var", "A /var/x", "A /var/y", "A /zz\xff", "A /zz\xff/no UTF-8",
	}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// TestChangesWithoutTheFiles: in a pod with the runtime's socket, the container's files are missing.
func TestChangesWithoutTheFiles(t *testing.T) {
	t.Parallel()
	err := changes(t.Context(), containerd.Overlay{Upper: filepath.Join(t.TempDir(), "fs")}, nil)
	if err == nil || !strings.Contains(err.Error(), "not to be seen from here") || cli.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
}
