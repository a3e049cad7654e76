// Package filelock implements locks between processes. The kernel releases a lock when the process that holds it dies.
package filelock

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/bounded"
)

const poll = 20 * time.Millisecond

// Lock is a lock held by this process. It also excludes other goroutines. A child that inherits File keeps the lock
// after this process has died, until the child ends.
type Lock struct{ File *os.File }

// Try takes a lock and creates its file if needed. It returns nil if the lock is held or its file was just removed.
// It fails if the file belongs to another user or if others have access to it, because they could keep it locked.
func Try(path string) (*Lock, error) {
	f, err := bounded.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || int(st.Uid) != os.Geteuid() || info.Mode()&0o077 != 0 {
		return nil, errors.Join(fmt.Errorf("the lock %s must be a file of mode 0600 that belongs to uid %d", path, os.Geteuid()), f.Close())
	}
	if ok, err := TryFile(f); !ok || err != nil {
		return nil, errors.Join(err, f.Close())
	}
	lock := &Lock{f}
	if now, err := os.Lstat(path); err != nil || !os.SameFile(now, info) {
		return nil, lock.Release()
	}
	return lock, nil
}

// TryFile locks a file that is open for writing. It returns false if the file is locked, also by this process.
func TryFile(f *os.File) (bool, error) {
	err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	if err != nil {
		return false, &os.PathError{Op: "lock", Path: f.Name(), Err: err}
	}
	return true, nil
}

// TryDir locks a directory with flock. how is LOCK_SH or LOCK_EX. TryFile cannot lock a directory, because its locks
// need a file that is open for writing.
func TryDir(dir *os.File, how int) (bool, error) {
	err := unix.Flock(int(dir.Fd()), how|unix.LOCK_NB)
	if err == nil || errors.Is(err, unix.EWOULDBLOCK) {
		return err == nil, nil
	}
	return false, &os.PathError{Op: "lock", Path: dir.Name(), Err: err}
}

// UnlockFile releases the lock even if a forked child still has a copy of the descriptor before its exec. Closing f
// would not release the lock then.
func UnlockFile(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_UNLCK})
}

// Wait takes a lock or waits for it until ctx ends. It calls waiting, which may be nil, if the lock is held.
func Wait(ctx context.Context, path string, waiting func()) (*Lock, error) {
	for first := true; ; first = false {
		lock, err := Try(path)
		if lock != nil || err != nil {
			return lock, err
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// Held reports whether a lock is held. It does not take the lock, because a concurrent Try would fail.
func Held(path string) bool {
	f, err := bounded.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_RDLCK}
	err = unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
	return err == nil && lock.Type != unix.F_UNLCK
}

func (l *Lock) Release() error { return errors.Join(UnlockFile(l.File), l.File.Close()) }

// Remove removes the file and releases the lock. Waiting processes notice the removal.
func (l *Lock) Remove() error { return errors.Join(os.Remove(l.File.Name()), l.Release()) }
