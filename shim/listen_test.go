package shim

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/internal/test"
	"golang.org/x/sys/unix"
)

func TestListenMakesAPrivateSocketAndRemovesIt(t *testing.T) {
	old := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(old) })
	path := filepath.Join(test.SocketDir(t), "deep", "s.sock")
	l, err := Listen(t.Context(), "unix://"+path)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("got mode %o, want 600", info.Mode().Perm())
	}
	if conn, err := net.Dial("unix", path); err != nil {
		t.Error(err)
	} else {
		conn.Close()
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(filepath.Dir(path)); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

// TestListenIsNotHeldUp checks that a flock on the directory, which any user can take, does not block Listen. The lock
// of another crishim of the same user does, until a deadline or a signal.
func TestListenIsNotHeldUp(t *testing.T) {
	directory := test.SocketDir(t)
	if err := os.Chmod(directory, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(directory, "s.sock")
	dir, err := os.Open(directory)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := Listen(ctx, path)
	if err != nil {
		t.Fatalf("with a lock on the directory: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if left, _ := os.ReadDir(directory); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}

	lock, err := filelock.Try(path + ".lock")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Release() }()
	ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := Listen(ctx, path); err == nil || !strings.Contains(err.Error(), path+".lock") {
		t.Errorf("with a lock that is held: got %v", err)
	}
}

// TestListenRefusesAForeignLock checks lock files that another user has created.
func TestListenRefusesAForeignLock(t *testing.T) {
	directory := test.SocketDir(t)
	victim := filepath.Join(directory, "victim")
	for what, make := range map[string]func(lock string) error{
		"a link":         func(lock string) error { return os.Symlink(victim, lock) },
		"a pipe":         func(lock string) error { return syscall.Mkfifo(lock, 0o600) },
		"a file for all": func(lock string) error { return errors.Join(os.WriteFile(lock, nil, 0o600), os.Chmod(lock, 0o666)) },
		"a file of somebody else's": func(lock string) error {
			return errors.Join(os.WriteFile(lock, nil, 0o600), os.Chown(lock, 12345, 12345))
		},
	} {
		path := filepath.Join(directory, "s.sock")
		if err := make(path + ".lock"); errors.Is(err, os.ErrPermission) {
			continue // only root can change the owner
		} else if err != nil {
			t.Fatal(err)
		}
		if l, err := Listen(t.Context(), path); err == nil {
			l.Close()
			t.Errorf("%s was taken", what)
		}
		if err := os.Remove(path + ".lock"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := os.Lstat(victim); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("behind the link: got %v", err)
	}
}

func TestListenTakesOverALeftover(t *testing.T) {
	path := filepath.Join(test.SocketDir(t), "s.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

func TestListenRefuses(t *testing.T) {
	dir := test.SocketDir(t)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	taken := filepath.Join(dir, "taken")
	l, err := Listen(t.Context(), taken)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	for name, c := range map[string]struct{ endpoint, want string }{
		"a socket that is served":     {taken, "another process serves"},
		"a file that is no socket":    {file, "is not a socket"},
		"another kind of endpoint":    {"tcp://127.0.0.1:1", "only unix:// and fd://"},
		"a relative path":             {"unix://s.sock", "absolute"},
		"a path that is too long":     {filepath.Join(dir, strings.Repeat("x", 108)), "allows 107"},
		"activation without a socket": {"fd://", "systemd passed no socket"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := Listen(t.Context(), c.endpoint)
			if err == nil {
				l.Close()
				t.Fatal("got no error")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %q, want %q in it", err, c.want)
			}
		})
	}
}

func TestCloseLeavesASuccessorsSocket(t *testing.T) {
	path := filepath.Join(test.SocketDir(t), "s.sock")
	first, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	second, err := Listen(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.Close()
	first.Close()
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the successor's socket is gone: %v", err)
	}
}
