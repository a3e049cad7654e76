package stream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// errInputStopped is what a stopped input returns.
var errInputStopped = errors.New("input stopped")

// input reads stdin and can be stopped while it waits, without taking a byte
// that was typed for another program. That needs a file to poll; any other
// reader is left to its goroutine, which ends with its next read.
type input struct {
	r       io.Reader
	file    *os.File // nil for what cannot be polled
	wake    int      // eventfd
	mu      sync.Mutex
	stopped bool
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
	if in.wake >= 0 && !in.stopped {
		in.stopped = true
		_, _ = unix.Write(in.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // an eventfd that was just made takes it
	}
}

// release frees the descriptor once no Read is left.
func (in *input) release() {
	if in.wake >= 0 {
		_ = unix.Close(in.wake)
	}
}

// pollable reports whether stop really ends a waiting Read.
func (in *input) pollable() bool { return in.file != nil }

// ParseDetachKeys reads docker's notation: keys separated by commas, each a
// single character or ctrl- and one of a-z @ [ \ ] ^ _. The empty string means
// no keys.
func ParseDetachKeys(s string) ([]byte, error) {
	if s == "" {
		return nil, nil
	}
	var keys []byte
	for _, key := range strings.Split(s, ",") {
		b, err := detachKey(key)
		if err != nil {
			return nil, err
		}
		keys = append(keys, b)
	}
	return keys, nil
}

func detachKey(key string) (byte, error) {
	name, ctrl := strings.CutPrefix(strings.ToLower(key), "ctrl-")
	switch {
	case !ctrl && len(key) == 1:
		return key[0], nil
	case ctrl && len(name) == 1 && name[0] >= 'a' && name[0] <= 'z':
		return name[0] - 'a' + 1, nil
	case ctrl && len(name) == 1 && strings.Contains(`@[\]^_`, name):
		return name[0] & 0x1f, nil
	}
	return 0, fmt.Errorf("invalid detach key %q: must be a character, or ctrl- and one of a-z @ [ \\ ] ^ _", key)
}

// detachScanner finds the detach keys in typed input. Keys that may be the
// beginning of the sequence are held back until the next one decides.
type detachScanner struct {
	keys []byte
	held int // how many of keys have been typed so far
}

// scan returns what is to be sent and whether the sequence is complete. What
// follows a complete sequence is dropped.
func (d *detachScanner) scan(typed []byte) (send []byte, detached bool) {
	if len(d.keys) == 0 {
		return typed, false
	}
	for _, b := range typed {
		if b == d.keys[d.held] {
			d.held++
			if d.held == len(d.keys) {
				return send, true
			}
			continue
		}
		send = append(send, d.mismatch(b)...)
	}
	return send, false
}

// mismatch gives up the longest part of the held keys that can no longer begin
// the sequence, so that "ctrl-p ctrl-p ctrl-q" still detaches.
func (d *detachScanner) mismatch(b byte) []byte {
	typed := append(bytes.Clone(d.keys[:d.held]), b)
	for n := len(typed) - 1; n > 0; n-- {
		if bytes.HasPrefix(d.keys, typed[len(typed)-n:]) {
			d.held = n
			return typed[:len(typed)-n]
		}
	}
	d.held = 0
	return typed
}
