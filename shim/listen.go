package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/activation"

	"github.com/crishim/crishim/internal/filelock"
	"github.com/crishim/crishim/internal/rundir"
)

// SystemdEndpoint is the socket that systemd passes to an activated service.
const SystemdEndpoint = "fd://"

const lockTimeout = 10 * time.Second

// Listen creates a socket with mode 0600 that is removed on Close, or uses systemd's.
func Listen(ctx context.Context, endpoint string) (net.Listener, error) {
	if endpoint == SystemdEndpoint {
		return activated()
	}
	path, isUnix := strings.CutPrefix(endpoint, "unix://")
	if !isUnix && strings.Contains(endpoint, "://") {
		return nil, fmt.Errorf("listen on %s: only unix:// and fd:// endpoints can be served", endpoint)
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("listen on %s: the socket's path must be absolute", endpoint)
	}
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := checkLength(path); err != nil {
		return nil, err
	}
	locking, cancel := context.WithTimeout(ctx, lockTimeout)
	defer cancel()
	lock, err := filelock.Wait(locking, path+".lock", nil)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: lock %s.lock: %w", path, path, err)
	}
	defer func() { _ = lock.Remove() }()
	if err := checkFree(path); err != nil {
		return nil, err
	}
	// Until its mode is set, the socket is in a private directory, so that no client can connect.
	private, err := os.MkdirTemp(directory, ".s")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer os.Remove(private)
	made := filepath.Join(private, "s")
	defer os.Remove(made) // without effect after the rename
	l, err := listenPrivate(made)
	if err != nil {
		return nil, err
	}
	if err := os.Rename(made, path); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	l.SetUnlinkOnClose(false)
	info, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	return &socket{UnixListener: l, path: path, made: info}, nil
}

// checkFree returns an error if the path is in use or not a socket. A stale socket may be replaced.
func checkFree(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("listen on %s: the file exists and is not a socket", path)
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if errors.Is(err, syscall.ECONNREFUSED) {
		return nil
	}
	if err == nil {
		conn.Close()
	}
	return fmt.Errorf("listen on %s: another process serves this socket", path)
}

// listenPrivate creates a socket with mode 0600. The path must be in a private directory, so that other users
// cannot connect before the mode is set. listenPrivate does not check the directory.
func listenPrivate(path string) (*net.UnixListener, error) {
	if err := checkLength(path); err != nil {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("socket %s: %w", path, err), l.Close())
	}
	return l, nil
}

func checkLength(path string) error {
	if len(path) > rundir.MaxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes, a unix socket allows %d", path, len(path), rundir.MaxSocketPath)
	}
	return nil
}

// socket removes its file on Close, unless another server has replaced the file.
type socket struct {
	*net.UnixListener
	path  string
	made  os.FileInfo
	close sync.Once
	err   error
}

func (s *socket) Close() error {
	s.close.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
			s.err = os.Remove(s.path)
		}
		s.err = errors.Join(s.err, s.UnixListener.Close())
	})
	return s.err
}

func activated() (net.Listener, error) {
	passed, err := activation.Listeners()
	switch {
	case err != nil:
		return nil, fmt.Errorf("listen on fd://: %w", err)
	case len(passed) == 0:
		return nil, errors.New("listen on fd://: systemd passed no socket to this process")
	case len(passed) > 1:
		err = fmt.Errorf("listen on fd://: systemd passed \"%d\" sockets, need one", len(passed))
		for _, l := range passed {
			if l != nil {
				err = errors.Join(err, l.Close())
			}
		}
		return nil, err
	case passed[0] == nil:
		return nil, errors.New("listen on fd://: systemd passed a socket that does not listen")
	}
	return passed[0], nil
}
