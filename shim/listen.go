package shim

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxSocketPath is what fits into a unix socket address.
const maxSocketPath = 107

// Listen opens the listener for an endpoint: unix:///path or a bare path for a
// socket with mode 0600 that is gone when the listener is closed, fd:// for the
// one that systemd passed.
func Listen(endpoint string) (net.Listener, error) {
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
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return listenPublic(path)
}

// listenPublic makes the socket under a private directory and moves it to its
// place, so that nobody can connect before its mode is set. The lock on the
// folder keeps a second server from taking the same place in the meantime.
func listenPublic(path string) (net.Listener, error) {
	if err := checkLength(path); err != nil {
		return nil, err
	}
	folder := filepath.Dir(path)
	lock, err := os.Open(folder)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	if err := checkFree(path); err != nil {
		return nil, err
	}
	private, err := os.MkdirTemp(folder, ".s")
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer os.RemoveAll(private)
	l, err := listenPrivate(filepath.Join(private, "s"))
	if err != nil {
		return nil, err
	}
	if err := os.Rename(filepath.Join(private, "s"), path); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	l.SetUnlinkOnClose(false)
	return newSocket(l, path)
}

// checkFree refuses a path where somebody answers or that holds no socket. A
// socket that nobody answers on is a leftover and may be replaced.
func checkFree(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", path, err)
	}
	if info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("listen on %s: there is something that is no socket", path)
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

// listenPrivate listens on a socket that only the user can connect to. The
// directory must be the user's own: between the bind and the chmod it is the
// directory that keeps others out, whatever the umask.
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
	if len(path) > maxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes, a unix socket allows %d", path, len(path), maxSocketPath)
	}
	return nil
}

// socket is a listener that removes its socket when it is closed, unless
// another server has put its own in the place.
type socket struct {
	*net.UnixListener
	path  string
	made  os.FileInfo
	close sync.Once
	err   error
}

func newSocket(l *net.UnixListener, path string) (*socket, error) {
	made, err := os.Lstat(path)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), l.Close())
	}
	return &socket{UnixListener: l, path: path, made: made}, nil
}

// Close implements net.Listener.
func (s *socket) Close() error {
	s.close.Do(func() {
		if now, err := os.Lstat(s.path); err == nil && os.SameFile(now, s.made) {
			s.err = os.Remove(s.path)
		}
		s.err = errors.Join(s.err, s.UnixListener.Close())
	})
	return s.err
}
