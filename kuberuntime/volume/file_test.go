package volume

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestReadFile reads a volume in which a container has created links, a FIFO and a large file.
func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	volume, secret := filepath.Join(dir, "volume"), filepath.Join(dir, "secret")
	if err := os.MkdirAll(filepath.Join(volume, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	large := strings.Repeat("x", maxFile)
	for path, text := range map[string]string{secret: "S='1'", volume + "/sub/env": "A='1'", volume + "/limit": large, volume + "/large": large + "x"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"inside": "sub/env", "absolute": secret, "up": "../secret", "dir": "..", "loop": "loop"} {
		if err := os.Symlink(target, filepath.Join(volume, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(volume, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	made := Made{Path: volume}
	for name, want := range map[string]string{"sub/env": "A='1'", "inside": "A='1'", "limit": large} {
		if got, err := ReadFile(made, name); err != nil || string(got) != want {
			t.Errorf("%s: got %d bytes, %v", name, len(got), err)
		}
	}
	for _, name := range []string{"absolute", "up", "dir/secret", "loop", "fifo", "sub", "large", "../secret"} {
		if got, err := ReadFile(made, name); err == nil {
			t.Errorf("%s: got %q", name, got[:min(len(got), 10)])
		}
	}
	if _, err := ReadFile(made, "gone"); !errors.Is(err, fs.ErrNotExist) || err.Error() != "no such file or directory" {
		t.Errorf("gone: got %v", err)
	}
}
