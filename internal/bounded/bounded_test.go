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
	if _, err := ReadRegular(pipe, 1<<20); err == nil || !strings.Contains(err.Error(), "no regular file") {
		t.Errorf("a pipe: got %v", err)
	}
	if text, err := ReadFile(os.DevNull, 1); err != nil || len(text) != 0 {
		t.Errorf("nothing: got %q, %v", text, err)
	}
}
