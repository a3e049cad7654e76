package kuberuntime

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// lockPoll is how often a lock that somebody else has is tried again.
const lockPoll = 100 * time.Millisecond

// LockPod keeps two processes from changing the same pod at the same time: what one has
// just made would be in the other's way. It waits until the context ends; waiting is told
// when that starts. unlock leaves nothing behind.
func (m *Manager) LockPod(ctx context.Context, namespace, name string, waiting func()) (unlock func() error, err error) {
	for told := false; ; {
		unlock, err := m.tryLockPod(namespace, name)
		if err != nil || unlock != nil {
			return unlock, err
		}
		if !told {
			told = true
			waiting()
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// tryLockPod is nil where somebody else works on the pod.
func (m *Manager) tryLockPod(namespace, name string) (unlock func() error, err error) {
	sum := sha256.Sum256([]byte(m.o.Endpoint + "\x00" + namespace + "/" + name))
	path := filepath.Join(m.o.Dirs.Root, "locks", hex.EncodeToString(sum[:8])+".lock")
	f, err := tryLock(path)
	if f == nil {
		return nil, err
	}
	// Removed while it is ours: whoever waits for this file sees that it has gone.
	return func() error { return errors.Join(os.Remove(path), f.Close()) }, nil
}

// tryLock takes a lock that the kernel gives back when its holder dies; nil where somebody else has it,
// or has just given it back.
func tryLock(path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, f.Close()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(mine, now) {
		return nil, f.Close()
	}
	return f, nil
}

// folderLockPath is the lock of the process that looks after a folder of manifests.
func folderLockPath(d pod.Dirs, folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return filepath.Join(d.Root, "sync", hex.EncodeToString(sum[:8])+".lock")
}

// FolderInUse reports whether a Loop looks after a folder.
func FolderInUse(d pod.Dirs, folder string) bool {
	f, err := os.Open(folderLockPath(d, folder))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
