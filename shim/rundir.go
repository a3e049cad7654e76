package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/stream"
)

const (
	rootBase     = "/run/crishim"
	sharedBase   = "/tmp"
	dirPrefix    = "crishim-"
	birthPrefix  = ".crishim-new-"
	socketName   = "cri.sock"
	recordsName  = "exec"
	birthTimeout = 10 * time.Minute
)

// runDir is the private directory of one embedded shim. It is locked while its
// process lives; the lock is on the directory itself, so that there is nothing
// in it but the socket and the records of running execs and of temporary
// containers.
type runDir struct {
	path string
	lock *os.File
}

func lookupOf(o Options) func(string) (string, bool) {
	if o.Engine.LookupEnv != nil {
		return o.Engine.LookupEnv
	}
	return os.LookupEnv
}

// baseDir is where run directories go. $TMPDIR is not asked: it may lead
// somewhere too long for a socket or to a place other users can change.
func baseDir(lookup func(string) (string, bool)) (string, error) {
	if os.Geteuid() == 0 {
		if err := os.MkdirAll(rootBase, 0o755); err == nil {
			return rootBase, checkOwner(rootBase)
		}
		return sharedBase, nil
	}
	if dir, ok := lookup("XDG_RUNTIME_DIR"); ok && filepath.IsAbs(dir) && checkOwner(dir) == nil {
		return dir, nil
	}
	return sharedBase, nil
}

// checkOwner refuses a directory that somebody else owns or may write to.
func checkOwner(dir string) error {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return fmt.Errorf("run directory %s: %w", dir, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR || int(st.Uid) != os.Geteuid() || st.Mode&0o022 != 0 {
		return fmt.Errorf("run directory %s must be a directory that belongs to uid %d and that nobody else can write to", dir, os.Geteuid())
	}
	return nil
}

// newRunDir makes a locked directory. It is born under another name and renamed
// once it is locked, so a sweep never meets a live directory without a lock.
func newRunDir(base string) (*runDir, error) {
	born, err := os.MkdirTemp(base, birthPrefix)
	if err != nil {
		return nil, fmt.Errorf("private directory for the embedded shim: %w", err)
	}
	path := filepath.Join(base, dirPrefix+strings.TrimPrefix(filepath.Base(born), birthPrefix))
	lock, err := lockDir(born)
	if err == nil {
		err = os.Rename(born, path)
	}
	if err != nil {
		if lock != nil {
			lock.Close()
		}
		return nil, errors.Join(fmt.Errorf("private directory for the embedded shim: %w", err), os.Remove(born))
	}
	return &runDir{path: path, lock: lock}, nil
}

func (d *runDir) socket() string { return filepath.Join(d.path, socketName) }

func (d *runDir) execRecords() string { return filepath.Join(d.path, recordsName) }

func (d *runDir) temporaries() string { return filepath.Join(d.path, temporaryName) }

func (d *runDir) remove() error {
	return errors.Join(os.RemoveAll(d.path), d.lock.Close())
}

// lockDir opens a directory of our own and locks it, or fails at once.
func lockDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	f := os.NewFile(uintptr(fd), path)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || int(st.Uid) != os.Geteuid() {
		return nil, errors.Join(fmt.Errorf("%s belongs to somebody else", path), err, f.Close())
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", path, err), f.Close())
	}
	return f, nil
}

// sweep removes what commands of this user left that were killed before they
// could: unlocked run directories with the processes and containers that are
// recorded there, and nothing else. A directory with containers that could not
// be removed stays for the next command. It is a courtesy, so its failures stop
// nobody.
func sweep(ctx context.Context, base, host string, engine stream.ExecInspector, containers containerLister) {
	entries, err := os.ReadDir(base)
	if err != nil {
		return
	}
	for _, entry := range entries {
		if !entry.IsDir() || !abandoned(entry) {
			continue
		}
		path := filepath.Join(base, entry.Name())
		lock, err := lockDir(path)
		if err != nil {
			continue
		}
		_ = stream.EndRecorded(ctx, filepath.Join(path, recordsName), engine)
		left := temporaries{dir: filepath.Join(path, temporaryName), engine: host}
		if left.remove(ctx, containers) == nil {
			os.RemoveAll(path)
		}
		lock.Close()
	}
}

// abandoned says whether a directory may be a leftover. One that is just being
// born has no lock yet and is left alone until it is old.
func abandoned(entry os.DirEntry) bool {
	if strings.HasPrefix(entry.Name(), dirPrefix) {
		return true
	}
	if !strings.HasPrefix(entry.Name(), birthPrefix) {
		return false
	}
	info, err := entry.Info()
	return err == nil && time.Since(info.ModTime()) > birthTimeout
}
