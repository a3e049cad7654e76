package logfile

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOpen checks that a container cannot redirect or block the reader of its log.
func TestOpen(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at := func(name ...string) string { return filepath.Join(append([]string{dir}, name...)...) }
	id := strings.Repeat("0123456789abcdef", 4)
	engines := at(id, id+"-json.log")
	err := errors.Join(
		os.WriteFile(at("0.log"), []byte("text"), 0o600),
		os.WriteFile(at("secret"), []byte("secret"), 0o600),
		os.Mkdir(at(id), 0o700), os.WriteFile(engines, []byte("text"), 0o600),
		os.Symlink(engines, at("engine.log")),
		os.Symlink(at("secret"), at("link.log")),
		os.Symlink("0.log", at("relative.log")),
		os.Symlink("loop.log", at("loop.log")),
		syscall.Mkfifo(at("pipe.log"), 0o600),
		os.Mkdir(at("dir.log"), 0o700),
		os.Mkdir(at("short"), 0o700), os.WriteFile(at("short", "short-json.log"), nil, 0o600), os.Symlink(at("short", "short-json.log"), at("short.log")),
		os.Mkdir(at("e"), 0o700), os.Mkdir(at("e", id), 0o700), os.Symlink(at("secret"), at("e", id, id+"-json.log")),
		os.Symlink(at("e", id, id+"-json.log"), at("twice.log")),
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, taken := range map[string]bool{
		"0.log": true, "engine.log": true,
		"link.log": false, "relative.log": false, "loop.log": false, "pipe.log": false, "dir.log": false, "short.log": false, "twice.log": false, "none.log": false,
	} {
		f, err := Open(at(name))
		if (err == nil) != taken {
			t.Errorf("%s: got %v, want it opened: %v", name, err, taken)
		}
		if err == nil {
			if text, err := io.ReadAll(f); err != nil || string(text) != "text" {
				t.Errorf("%s: got %q, %v", name, text, err)
			}
			f.Close()
		}
	}
	if _, err := Open(at("none.log")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want that there is none", err)
	}
}
