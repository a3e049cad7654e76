package filelock

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func take(t *testing.T, path string) *Lock {
	t.Helper()
	lock, err := Try(path)
	if err != nil || lock == nil {
		t.Fatalf("Try: %v, %v", lock, err)
	}
	return lock
}

func TestLockHasOneHolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	if Held(path) {
		t.Error("a lock without a file is held")
	}
	lock := take(t, path)
	if second, err := Try(path); second != nil || err != nil {
		t.Errorf("a second Try: %v, %v", second, err)
	}
	if !Held(path) {
		t.Error("a lock that is held is not")
	}
	waits, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	calls := 0
	if _, err := Wait(waits, path, func() { calls++ }); !errors.Is(err, context.DeadlineExceeded) || calls != 1 {
		t.Errorf("Wait: %v, called %d times", err, calls)
	}
	child, err := unix.FcntlInt(lock.File.Fd(), unix.F_DUPFD_CLOEXEC, 0) // like a forked child before its exec
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(child)
	if err := lock.Release(); err != nil {
		t.Fatal(err)
	}
	if Held(path) {
		t.Error("a lock that was released is held")
	}
	if err := take(t, path).Remove(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Remove: %v", err)
	}
}

// TestHeldTakesNothing calls Held continuously while another goroutine takes the lock repeatedly.
func TestHeldTakesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	stop := make(chan struct{})
	var looking sync.WaitGroup
	defer looking.Wait()
	defer close(stop)
	for range 4 {
		looking.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					Held(path)
				}
			}
		})
	}
	for range 2000 {
		if err := take(t, path).Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWaitAfterRemove checks that concurrent waiters that remove the lock never hold it together.
func TestWaitAfterRemove(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.lock")
	var holders sync.WaitGroup
	var held sync.Mutex
	for range 8 {
		holders.Go(func() {
			for range 5 {
				lock, err := Wait(t.Context(), path, nil)
				if err != nil {
					t.Error(err)
					return
				}
				if !held.TryLock() {
					t.Error("two hold the lock")
					return
				}
				held.Unlock()
				if err := lock.Remove(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	holders.Wait()
}

func TestFileOfOthersIsNoLock(t *testing.T) {
	dir := t.TempDir()
	open := filepath.Join(dir, "open")
	if err := os.WriteFile(open, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o644); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(filepath.Join(dir, "target"), link); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{open: "mode 0600", link: "too many levels", dir: "is a directory", filepath.Join(dir, "no", "x"): "no such file"} {
		if lock, err := Try(path); lock != nil || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", path, lock, err, want)
		}
	}
}
