package containerd

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/test"
)

// TestOverlayOpen checks that Open merges layers as overlayfs does, and that no link escapes them.
func TestOverlayOpen(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "needs root to make whiteouts")
	}
	base := t.TempDir()
	for _, path := range []string{"low/bin/sh", "low/lib/gone", "low/opt/hidden", "low/etc/mounted/x", "low/file/below", "mid/lib/real", "mid/data/x", "up/bin/own", "up/opt/new", "up/file", "low/sub/other/z"} {
		at := filepath.Join(base, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(path), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	outside := filepath.Join(base, "outside")
	err := errors.Join(os.WriteFile(outside, nil, 0o600),
		os.Symlink("../lib/real", filepath.Join(base, "mid/data/relative")), os.Symlink("/data", filepath.Join(base, "up/bin/there")),
		os.Symlink("loop", filepath.Join(base, "up/loop")), os.Symlink("../../../"+outside, filepath.Join(base, "up/out")), os.Symlink(outside, filepath.Join(base, "up/absolute")),
		os.Symlink("sub/other", filepath.Join(base, "up/inner")),
		unix.Mkdir(filepath.Join(base, "up/lib"), 0o755), unix.Mknod(filepath.Join(base, "up/lib/gone"), unix.S_IFCHR|0o600, 0),
		unix.Setxattr(filepath.Join(base, "up/opt"), "trusted.overlay.opaque", []byte("y"), 0))
	if err != nil {
		t.Fatal(err)
	}
	// A container can set this attribute. Older kernels have none on tmpfs.
	if err := errors.Join(os.Mkdir(filepath.Join(base, "up/data"), 0o755), unix.Setxattr(filepath.Join(base, "up/data"), "user.overlay.opaque", []byte("y"), 0)); err != nil && !errors.Is(err, unix.ENOTSUP) {
		t.Fatal(err)
	}
	o := Overlay{Upper: filepath.Join(base, "up"), Lower: []string{filepath.Join(base, "mid"), filepath.Join(base, "low")}, Mounts: []string{"/etc/mounted"}}
	for path, want := range map[string]string{
		"/bin/sh": "low/bin/sh", "bin/../bin/own": "up/bin/own", "/bin/there/x": "mid/data/x", "/bin/there/relative": "mid/lib/real", "/opt/new": "up/opt/new",
		"/inner/../x": "none", "/inner/../other/z": "low/sub/other/z",
		"/lib/gone": "none", "/opt/hidden": "none", "/bin/nosuch": "none", "/nosuch/x": "none", "/file/below": "none", "/out": "none", "/absolute": "none",
		"/loop": "unknown", "/etc/mounted/x": "unknown", "/bin": "unknown", "/": "unknown",
	} {
		got := "unknown"
		f, err := o.Open(path)
		switch {
		case err == nil:
			text, _ := io.ReadAll(f)
			got = string(text)
			_ = f.Close()
		case errors.Is(err, fs.ErrNotExist):
			got = "none"
		}
		if got != want {
			t.Errorf("%s: got %s, %v; want %s", path, got, err, want)
		}
	}
	o.Lower[0] = filepath.Join(base, "nosuch")
	if _, err := o.Open("/nosuch"); err == nil || errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "layer") {
		t.Errorf("without a layer: %v", err)
	}
}
