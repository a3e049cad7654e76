package stream

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"log/slog"

	"github.com/crishim/crishim/internal/proctree"
)

// TestForgedRecords checks that forged records and forged entries kill no process and remove no file.
func TestForgedRecords(t *testing.T) {
	t.Parallel()
	self, err := proctree.Find(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	exec, id := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	whole := note{Exec: exec, Container: id, Boot: proctree.BootID(), Process: &self}
	part := whole
	part.Container = "/" // occurs in each process's cgroup path
	for name, c := range map[string]struct {
		mode   os.FileMode
		file   string
		note   note
		errors bool
		kept   bool
	}{
		"part of an id":                  {0o700, exec + ".json", part, true, false},
		"another exec's name":            {0o700, id + ".json", whole, true, false},
		"a file of another name":         {0o700, "other.json", whole, false, true},
		"a directory others can look in": {0o755, exec + ".json", whole, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "exec")
			text, err := json.Marshal(c.note)
			path := filepath.Join(dir, c.file)
			if err := errors.Join(err, os.Mkdir(dir, c.mode), os.WriteFile(path, text, 0o600)); err != nil {
				t.Fatal(err)
			}
			if err := EndRecorded(t.Context(), dir, nil); (err != nil) != c.errors {
				t.Errorf("got %v, want an error: %v", err, c.errors)
			}
			if _, err := os.Lstat(path); (err == nil) != c.kept {
				t.Errorf("got %v, want the file kept: %v", err, c.kept)
			}
		})
	}
}

// TestRecordsOnlyInAPrivateDirectory covers a socket in /tmp. Another user may have created the directory beside it to
// redirect writes through a link.
func TestRecordsOnlyInAPrivateDirectory(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	exec, id := strings.Repeat("ab", 32), strings.Repeat("cd", 32)
	open, victim := filepath.Join(base, "open"), filepath.Join(base, "victim")
	if err := errors.Join(os.Mkdir(open, 0o777), os.Chmod(open, 0o777), os.WriteFile(victim, []byte("text"), 0o600),
		os.Symlink(victim, filepath.Join(open, exec+".json.new"))); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	records{dir: open, log: log}.begin(exec, id).end()
	if text, err := os.ReadFile(victim); err != nil || string(text) != "text" {
		t.Errorf("the file behind the link: got %q, %v", text, err)
	}
	private := records{dir: filepath.Join(base, "private"), log: log}
	r := private.begin(exec, id)
	if _, err := os.Stat(filepath.Join(private.dir, exec+".json")); err != nil {
		t.Error(err)
	}
	r.end()
	private.close()
	if _, err := os.Stat(private.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want no directory left", err)
	}
}
