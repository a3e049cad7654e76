package proctree

import (
	"context"
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// pollInterval is how often a process is looked at where the kernel cannot tell of its end.
const pollInterval = 20 * time.Millisecond

// Wait returns nil when the process has ended, or the cause of ctx.
// It costs no thread: the runtime's poller watches a pidfd.
func (p Process) Wait(ctx context.Context) error {
	fd, err := p.open()
	if errors.Is(err, ErrGone) {
		return nil
	}
	if err != nil || unix.SetNonblock(fd, true) != nil {
		if err == nil {
			_ = unix.Close(fd)
		}
		return p.poll(ctx)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if f.SetReadDeadline(time.Time{}) != nil { // the poller does not take it
		return p.poll(ctx)
	}
	stop := context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()

	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(func(fd uintptr) bool {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ready, 0)
		return err == nil && n == 1
	})
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func (p Process) poll(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for p.Alive() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
	return nil
}
