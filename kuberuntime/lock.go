package kuberuntime

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// folderLock keeps two processes from looking after the same folder of manifests. The
// kernel gives it back when its holder dies.
type folderLock struct{ file *os.File }

func lockPath(d pod.Dirs, folder string) string {
	sum := sha256.Sum256([]byte(folder))
	return filepath.Join(d.Root, "sync", hex.EncodeToString(sum[:8])+".lock")
}

func lockFolder(d pod.Dirs, folder string) (*folderLock, error) {
	path := lockPath(d, folder)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = fmt.Errorf("another crishim sync looks after %s", folder)
		}
		return nil, errors.Join(err, f.Close())
	}
	return &folderLock{f}, nil
}

func (l *folderLock) unlock() error { return l.file.Close() }

// FolderInUse says whether a Loop looks after a folder.
func FolderInUse(d pod.Dirs, folder string) bool {
	f, err := os.Open(lockPath(d, folder))
	if err != nil {
		return false
	}
	defer f.Close()
	return errors.Is(unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB), unix.EWOULDBLOCK)
}
