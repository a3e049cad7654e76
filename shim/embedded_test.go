package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/internal/test"
)

// deadDir creates the directory of a killed command.
func deadDir(t *testing.T, base string) string {
	t.Helper()
	dir := filepath.Join(base, "shim-0123456789abcdef")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestSweepRemovesWhatAKilledCommandLeaves checks all kinds of entries in a command's directory.
func TestSweepRemovesWhatAKilledCommandLeaves(t *testing.T) {
	base := test.SocketDir(t)
	dir := deadDir(t, base)
	record := strings.Repeat("ab", 32) + ".json"
	for _, name := range []string{socketName, "exec/" + record, "exec/" + record + ".new"} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t.Context(), base, "", nil, &owned{})
	if left, err := os.ReadDir(base); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestSweepLeavesWhatItDidNotMake checks that foreign entries beside and inside the directories are kept.
func TestSweepLeavesWhatItDidNotMake(t *testing.T) {
	base := test.SocketDir(t)
	dir := deadDir(t, base)
	kept := []string{
		filepath.Join(base, "crishim-1.2.0", "src", "main.go"),
		filepath.Join(dir, "src", "main.go"),
		filepath.Join(dir, "exec", "notes.json"),
	}
	for _, path := range kept {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	sweep(t.Context(), base, "", nil, &owned{})
	for _, path := range kept {
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	}
}

// TestRunDirIsPrivateWhateverTheUmask checks that other users can neither read a command's directory nor connect to its
// socket.
func TestRunDirIsPrivateWhateverTheUmask(t *testing.T) {
	for _, mask := range []int{0, 0o22, 0o77} {
		old := syscall.Umask(mask)
		dir, err := rundir.New(test.SocketDir(t), shimDirs)
		if err != nil {
			t.Fatal(err)
		}
		socket := filepath.Join(dir.Path, socketName)
		l, err := listenPrivate(socket)
		syscall.Umask(old)
		if err != nil {
			t.Fatal(err)
		}
		for path, want := range map[string]os.FileMode{dir.Path: 0o700, socket: 0o600} {
			if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
				t.Errorf("umask %03o: %s: got %v, %v, want %o", mask, path, info.Mode(), err, want)
			}
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		if err := dir.Remove(); err != nil {
			t.Error(err)
		}
		if _, err := os.Lstat(dir.Path); !os.IsNotExist(err) {
			t.Errorf("got %v, want the directory gone", err)
		}
	}
}

// owned records the removal of killed commands' containers.
type owned struct {
	removed []string // owners
	err     error
}

func (o *owned) RemoveOwned(_ context.Context, owner string) error {
	if o.err == nil {
		o.removed = append(o.removed, owner)
	}
	return o.err
}

func TestSweepOfTemporaryContainers(t *testing.T) {
	var containers owned
	base := test.SocketDir(t)
	dir := deadDir(t, base)
	if err := os.WriteFile(filepath.Join(dir, temporaryName), []byte("unix:///here"), 0o600); err != nil {
		t.Fatal(err)
	}
	there := func() bool { _, err := os.Stat(dir); return err == nil }

	sweep(t.Context(), base, "unix:///elsewhere", nil, &containers)
	if !there() || containers.removed != nil {
		t.Errorf("with another engine: got %v removed, directory there: %v", containers.removed, there())
	}
	containers.err = errors.New("the engine is away")
	sweep(t.Context(), base, "unix:///here", nil, &containers)
	if !there() {
		t.Error("with an engine that is away: the directory is gone")
	}
	containers.err = nil
	sweep(t.Context(), base, "unix:///here", nil, &containers)
	if diff := cmp.Diff([]string{filepath.Base(dir)}, containers.removed); diff != "" || there() {
		t.Errorf("removed (-want +got):\n%s\ndirectory there: %v", diff, there())
	}
}
