package logs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crishim/crishim/shim/internal/logdir"
)

func at(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }

func line(second int, text string) string {
	return fmt.Sprintf("%s stdout F %s\n", at(second).Format(stampLayout), text)
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), fileMode); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func open(t *testing.T, path string) (*os.File, *position) {
	t.Helper()
	f, pos, err := openFile(logdir.Place{Path: path}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, pos
}

func TestNewLogFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pod", "container", "0.log")
	_, pos := open(t, path)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&^fileMode != 0 || info.Size() != 0 {
		t.Errorf("got %v, %v", info, err)
	}
	if !pos.since().IsZero() {
		t.Errorf("got a position at %v, want the beginning", pos.since())
	}
}

func TestLinkIsReplacedAndItsTargetKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	target, path := filepath.Join(dir, "engine.log"), filepath.Join(dir, "0.log")
	write(t, target, line(1, "the engine's own"))
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
	f, pos := open(t, path)
	if !pos.since().IsZero() {
		t.Error("the position is not the beginning")
	}
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Lstat(path); err != nil || !info.Mode().IsRegular() || info.Mode().Perm() != fileMode {
		t.Errorf("got %v, %v", info, err)
	}
	if got := read(t, target); got != line(1, "the engine's own") {
		t.Errorf("the link's target was changed: %q", got)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestUnusablePaths(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	for _, path := range []string{dir, filepath.Join(dir, "file", "0.log"), "/dev/null"} {
		if f, _, err := openFile(logdir.Place{Path: path}, false); err == nil {
			f.Close()
			t.Errorf("%s: got success", path)
		}
	}
}

func TestResume(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	whole := line(1, "old") + line(30, "a") + line(30, "a") + line(29, "late") + line(31, "b")
	write(t, path, whole+"2026-01-02T03:04:32.0000")
	f, pos := open(t, path)
	if got := read(t, path); got != whole {
		t.Errorf("got %q, want the unfinished line gone", got)
	}
	if want := at(31).Add(-overlap); !pos.since().Equal(want) {
		t.Errorf("got position %v, want %v", pos.since(), want)
	}
	pos.rewind(false)
	var fresh []string
	for _, l := range []string{line(30, "a"), line(30, "a"), line(30, "a"), line(29, "late"), line(31, "b"), line(31, "c"), line(31, "c")} {
		if pos.fresh([]byte(l)) {
			fresh = append(fresh, l)
		}
	}
	if want := fmt.Sprint([]string{line(30, "a"), line(31, "c"), line(31, "c")}); fmt.Sprint(fresh) != want {
		t.Errorf("got %v to be written, want %v", fresh, want)
	}
	if _, err := f.WriteString("next"); err != nil || read(t, path) != whole+"next" {
		t.Errorf("got %q, %v", read(t, path), err)
	}
}

func TestResumeAfterRotation(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "0.log")
	write(t, path+".20260101-000000", line(1, "older"))
	write(t, path+".20260102-000000", line(10, "newest"))
	write(t, path+".20260103-000000.gz", "compressed")
	write(t, path, "")
	_, pos := open(t, path)
	pos.rewind(false)
	if pos.fresh([]byte(line(10, "newest"))) || !pos.fresh([]byte(line(1, "older"))) {
		t.Error("the newest file that was rotated away does not count")
	}
}

func TestPositionForgets(t *testing.T) {
	t.Parallel()
	pos := newPosition()
	for i := range 40_000 {
		when := at(0).Add(time.Duration(i) * time.Millisecond)
		pos.wrote(when, []byte(when.String()))
	}
	if n := len(pos.recent); n > 20_000 {
		t.Errorf("%d records are kept", n)
	}
	if len(pos.counts) != len(pos.recent) {
		t.Errorf("got %d counts for %d records", len(pos.counts), len(pos.recent))
	}
}
