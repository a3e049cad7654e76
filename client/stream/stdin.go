package stream

import (
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// errInputStopped is what a stopped input returns.
var errInputStopped = errors.New("input stopped")

// input reads stdin and can be stopped while it waits, without taking a byte
// that was typed for somebody else. That needs a file to poll; any other
// reader is left to its goroutine, which ends with its next read.
type input struct {
	r    io.Reader
	file *os.File // nil for what cannot be polled
	wake int      // eventfd
	mu   sync.Mutex
	shut bool
}

func newInput(r io.Reader) *input {
	in := &input{r: r, wake: -1}
	f, ok := r.(*os.File)
	if !ok {
		return in
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err == nil {
		in.file, in.wake = f, fd
	}
	return in
}

// Read waits for input or for stop.
func (in *input) Read(p []byte) (int, error) {
	if in.file == nil {
		return in.r.Read(p)
	}
	if err := in.wait(); err != nil {
		return 0, err
	}
	n, err := in.file.Read(p)
	if errors.Is(err, unix.EIO) { // a terminal whose other side is gone
		return n, io.EOF
	}
	return n, err
}

// wait polls through the runtime's handle on the file, which neither changes
// its mode nor lets it be closed in the meantime.
func (in *input) wait() error {
	conn, err := in.file.SyscallConn()
	if err != nil {
		return err
	}
	stopped := false
	ctlErr := conn.Control(func(fd uintptr) {
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}, {Fd: int32(in.wake), Events: unix.POLLIN}}
		for {
			_, err = unix.Poll(fds, -1)
			if !errors.Is(err, unix.EINTR) {
				break
			}
		}
		stopped = fds[1].Revents != 0
	})
	if stopped {
		return errInputStopped
	}
	return errors.Join(ctlErr, err)
}

// stop makes a waiting and every later Read return. It is safe to call twice.
func (in *input) stop() {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.wake >= 0 && !in.shut {
		in.shut = true
		_, _ = unix.Write(in.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd that was just made takes it
	}
}

// release frees the descriptor once no Read is left.
func (in *input) release() {
	if in.wake >= 0 {
		_ = unix.Close(in.wake)
	}
}

// pollable says whether stop really ends a waiting Read.
func (in *input) pollable() bool { return in.file != nil }
