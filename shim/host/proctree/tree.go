package proctree

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// maxRounds bounds how often a tree is walked for processes that were not seen before.
const maxRounds = 100

// members picks the tree of root out of a snapshot: the children and their
// children, and every process of the session that root leads, also one whose
// parent has ended and which init has adopted. A pid that is in use as session
// id is not given to a new process, so a session of root's number is
// root's, unless a younger process has that pid now.
func members(root Process, all []stat) []Process {
	for _, st := range all {
		if st.pid == root.PID && st.start != root.Start {
			return nil
		}
	}
	in := map[int]bool{}
	var tree []Process
	for grown := true; grown; {
		grown = false
		for _, st := range all {
			belongs := st.pid == root.PID || in[st.ppid] || st.session == root.PID
			if in[st.pid] || !belongs || st.start < root.Start {
				continue
			}
			in[st.pid], grown = true, true
			if !st.dead() {
				tree = append(tree, Process{PID: st.pid, Start: st.start})
			}
		}
	}
	return tree
}

// Kill ends root and everything that it has started in its container, as far as
// it can be told (see members and strays), and waits until they are gone or ctx is
// done. All are stopped first, until a walk finds no new one, so that nothing
// escapes by forking between being seen and being killed. Without a container
// there are no strays.
func Kill(ctx context.Context, root Process, container string) error {
	var errs []error
	stopped := map[Process]bool{}
	for range maxRounds {
		all, err := snapshot()
		if err != nil {
			return err
		}
		tree := members(root, all)
		for _, stray := range strays(root, container, all) {
			tree = append(tree, members(stray, all)...)
		}
		fresh := 0
		for _, p := range tree {
			if !stopped[p] {
				stopped[p] = true
				fresh++
				errs = append(errs, p.signal(unix.SIGSTOP))
			}
		}
		if fresh == 0 {
			break
		}
	}
	for p := range stopped {
		errs = append(errs, p.signal(unix.SIGKILL))
	}
	for p := range stopped {
		if err := p.Wait(ctx); err != nil {
			errs = append(errs, fmt.Errorf("process %d has not ended: %w", p.PID, err))
		}
	}
	return errors.Join(errs...)
}

// signal sends through a pidfd, which cannot hit a process that got the pid
// later. Kernels without pidfds get a plain kill after a last look.
func (p Process) signal(sig unix.Signal) error {
	fd, err := p.open()
	switch {
	case errors.Is(err, ErrGone):
		return nil
	case err != nil:
		if !p.Alive() {
			return nil
		}
		err = unix.Kill(p.PID, sig)
	default:
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
		_ = unix.Close(fd)
	}
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

// open returns a pidfd that is certain to stand for p.
func (p Process) open() (int, error) {
	fd, err := unix.PidfdOpen(p.PID, 0)
	if errors.Is(err, unix.ESRCH) {
		return -1, ErrGone
	}
	if err != nil {
		return -1, err
	}
	if !p.Alive() {
		_ = unix.Close(fd)
		return -1, ErrGone
	}
	return fd, nil
}
