package bounded

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestReadFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, read := range map[string]func(string, int64) ([]byte, error){"any": ReadFile, "regular": ReadRegular} {
		if text, err := read(file, 4); err != nil || string(text) != "text" {
			t.Errorf("%s: got %q, %v", what, text, err)
		}
		if text, err := read(file, 3); err == nil || !strings.Contains(err.Error(), file) || text != nil {
			t.Errorf("%s: got %q, %v, want that it is too long", what, text, err)
		}
		if _, err := read("/dev/zero", 1<<20); err == nil {
			t.Errorf("%s: read a file without an end", what)
		}
		if _, err := read(filepath.Join(dir, "none"), 1); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: got %v, want that there is none", what, err)
		}
	}
	if _, err := ReadRegular(pipe, 1<<20); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a pipe: got %v", err)
	}
	if text, err := ReadFile(os.DevNull, 1); err != nil || len(text) != 0 {
		t.Errorf("nothing: got %q, %v", text, err)
	}
}

// TestOpenFile checks that only regular files are opened, that Open follows no link, and that nothing blocks.
func TestOpenFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, link, pipe := filepath.Join(dir, "file"), filepath.Join(dir, "link"), filepath.Join(dir, "pipe")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), os.Symlink(file, link), syscall.Mkfifo(pipe, 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path  string
		flags int
		ok    bool
	}{
		{file, os.O_RDONLY, true}, {link, os.O_RDONLY, true}, {file, os.O_WRONLY | syscall.O_NOFOLLOW, true}, {filepath.Join(dir, "new"), os.O_WRONLY | os.O_CREATE, true},
		{link, os.O_RDONLY | syscall.O_NOFOLLOW, false}, {pipe, os.O_RDONLY, false}, {pipe, os.O_WRONLY, false}, {pipe, os.O_RDWR, false}, {dir, os.O_RDONLY, false}, {os.DevNull, os.O_RDONLY, false},
	} {
		f, err := OpenFile(c.path, c.flags)
		if (err == nil) != c.ok {
			t.Errorf("%s with %x: got %v", c.path, c.flags, err)
		}
		if f != nil {
			f.Close()
		}
	}
}
