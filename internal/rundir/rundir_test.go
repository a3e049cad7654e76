package rundir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/test"
)

var kind = Kind{Name: "test", Entries: lazyregexp.New(`^(a|b(/[0-9]+)?)$`)}

func write(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func TestSweep(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	alive, err := New(base, kind)
	if err != nil {
		t.Fatal(err)
	}
	at := func(id string) string { return filepath.Join(base, "test-"+id) }
	gone := []string{at("0000000000000000"), at("000000000000000f")}
	write(t, filepath.Join(gone[0], "a"))
	write(t, filepath.Join(gone[1], "b", "12"))
	kept := []string{
		at("0000000000000001/c"), at("0000000000000002/b/x"), at("0000000000000003/a/12"), at("0000000000000004/xa"), // entries with other names
		at("1.2.0/a"), at("000000000000000F/a"), at("00000000000000/a"), at("0000000000000000a/a"), at("x/a"), // other directory names
		filepath.Join(base, "other-0000000000000000", "a"), at("0000000000000005"),
	}
	for _, path := range kept {
		write(t, path)
	}
	open := at("0000000000000006")
	write(t, filepath.Join(open, "a"))
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	target := filepath.Join(t.TempDir(), "a")
	write(t, target)
	link := at("0000000000000007")
	inside := at("0000000000000008")
	if err := errors.Join(os.Symlink(filepath.Dir(target), link), os.Mkdir(inside, 0o700), os.Symlink(filepath.Dir(target), filepath.Join(inside, "b"))); err != nil {
		t.Fatal(err)
	}
	unfinished := at("0000000000000009")
	write(t, filepath.Join(unfinished, "a"))

	Sweep(base, kind, func(dir string) error {
		if dir == unfinished {
			return errors.New("the engine is away")
		}
		return nil
	})
	for _, path := range append(gone, inside) {
		if exists(path) {
			t.Errorf("%s is still there", path)
		}
	}
	for _, path := range append(kept, alive.Path, filepath.Join(open, "a"), link, target, filepath.Join(unfinished, "a")) {
		if !exists(path) {
			t.Errorf("%s is gone", path)
		}
	}
	if err := alive.Remove(); err != nil || exists(alive.Path) {
		t.Errorf("got %v, want the directory gone", err)
	}
}

// TestRemoveKeepsWhatItDidNotMake checks that a foreign file is kept and named in the error.
func TestRemoveKeepsWhatItDidNotMake(t *testing.T) {
	t.Parallel()
	d, err := New(t.TempDir(), kind)
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(d.Path, "a"))
	write(t, filepath.Join(d.Path, "mine"))
	if err := d.Remove(); err == nil || !strings.Contains(err.Error(), `"mine"`) {
		t.Errorf("got %v, want the name of what stays", err)
	}
	if exists(filepath.Join(d.Path, "a")) || !exists(filepath.Join(d.Path, "mine")) {
		t.Error("got the wrong file removed")
	}
}

// TestNewAndSweepAtTheSameTime checks that concurrent commands do not remove each other's directories.
func TestNewAndSweepAtTheSameTime(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				d, err := New(base, kind)
				if err != nil {
					t.Error(err)
					return
				}
				Sweep(base, kind, nil)
				if !exists(d.Path) {
					t.Errorf("%s is gone", d.Path)
				}
				if err := d.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	Sweep(base, kind, nil)
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

func TestNewRefusesALongPath(t *testing.T) {
	t.Parallel()
	base := filepath.Join(t.TempDir(), strings.Repeat("x", 80))
	if err := os.Mkdir(base, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := New(base, kind); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("got %v", err)
	}
}

// TestOpenPrivateRefuses checks that files and directories that other users could have created are rejected.
func TestOpenPrivateRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	private, open, link, file := filepath.Join(dir, "private"), filepath.Join(dir, "open"), filepath.Join(dir, "link"), filepath.Join(dir, "file")
	write(t, file)
	if err := errors.Join(os.Mkdir(private, 0o700), os.Mkdir(open, 0o750), os.Symlink(private, link)); err != nil {
		t.Fatal(err)
	}
	refused := []string{open, link, file, filepath.Join(dir, "missing")}
	if os.Geteuid() == 0 {
		foreign := filepath.Join(dir, "foreign")
		if err := errors.Join(os.Mkdir(foreign, 0o700), os.Chown(foreign, 12345, 12345)); err != nil {
			t.Fatal(err)
		}
		refused = append(refused, foreign)
	}
	for _, path := range refused {
		if root, err := OpenPrivate(path); err == nil {
			root.Close()
			t.Errorf("%s was taken", filepath.Base(path))
		}
	}
	root, err := OpenPrivate(private)
	if err != nil {
		t.Fatal(err)
	}
	root.Close()
}

// TestBase checks the choice of the base directory and its validation.
func TestBase(t *testing.T) {
	runtime := t.TempDir()
	if err := os.Chmod(runtime, 0o700); err != nil {
		t.Fatal(err)
	}
	lookup := func(key string) (string, bool) {
		return map[string]string{"XDG_RUNTIME_DIR": runtime, "TMPDIR": "/nonexistent"}[key], true
	}
	base, err := Base(lookup)
	if err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		if info, err := os.Stat(base); base != "/run/crishim" || err != nil || info.Mode().Perm()&0o022 != 0 {
			t.Errorf("got %s, %v, %v", base, info.Mode(), err)
		}
		return
	}
	if info, err := os.Stat(base); base != filepath.Join(runtime, "crishim") || err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("got %s, %v, %v", base, info.Mode(), err)
	}
	if err := os.Chmod(base, 0o770); err != nil {
		t.Fatal(err)
	}
	if _, err := Base(lookup); err == nil || !strings.Contains(err.Error(), "mode 0700") {
		t.Errorf("a directory that others can write to: got %v", err)
	}
	if err := os.Chmod(runtime, 0o777); err != nil {
		t.Fatal(err)
	}
	if base, err := Base(lookup); err == nil && base != "/tmp/crishim-"+strconv.Itoa(os.Geteuid()) {
		t.Errorf("in a directory that others can write to: got %s, %v", base, err)
	}
}

// TestMakeBaseOnAReadOnlyFileSystem covers a read-only /run, as in many containers.
func TestMakeBaseOnAReadOnlyFileSystem(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		test.Missing(t, "mounts need root")
	}
	dir := t.TempDir()
	base := filepath.Join(dir, "crishim")
	if err := makeBase(base, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(dir, dir, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{base, filepath.Join(dir, "missing")} {
		if err := makeBase(path, 0o755); !errors.Is(err, unix.EROFS) {
			t.Errorf("%s: got %v", filepath.Base(path), err)
		}
	}
}

// TestMakeBaseRefuses checks that a directory created by another user is rejected.
func TestMakeBaseRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	base := filepath.Join(dir, "crishim-0")
	refused := map[string]func() error{
		"with a directory for all": func() error { return errors.Join(os.Mkdir(base, 0), os.Chmod(base, fs.ModePerm)) },
		"with a link":              func() error { return os.Symlink(dir, base) },
		"with a file":              func() error { return os.WriteFile(base, nil, 0o600) },
	}
	if os.Geteuid() == 0 {
		refused["with somebody else's directory"] = func() error { return errors.Join(os.Mkdir(base, 0o700), os.Chown(base, 12345, 12345)) }
	}
	for what, make := range refused {
		if err := make(); err != nil {
			t.Fatal(err)
		}
		if err := makeBase(base, 0o700); err == nil {
			t.Errorf("%s: it was taken", what)
		}
		if err := os.Remove(base); err != nil {
			t.Fatal(err)
		}
	}
	if err := makeBase(base, 0o700); err != nil {
		t.Error(err)
	}
}
