package proctree

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

const maxRounds = 100

// Kill ends root and its descendants in its container as far as they can be found (see members and strays), and waits
// until they are gone or ctx is done. It first stops the processes and repeats the search until it finds no new
// process, so that no process escapes by forking. With an empty container it does not look for strays.
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

func snapshot() ([]procfs.ProcStat, error) {
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil, err
	}
	all := make([]procfs.ProcStat, 0, len(processes))
	for _, p := range processes {
		if st, err := p.Stat(); err == nil {
			all = append(all, st)
		}
	}
	return all, nil
}

// members returns root's descendants and all processes of the session that root leads, including orphans. The kernel
// does not reuse a pid while it is a session id. If another process has root's pid, root's session no longer exists,
// and members returns nil.
func members(root Process, all []procfs.ProcStat) []Process {
	for _, st := range all {
		if st.PID == root.PID && st.Starttime != root.Start {
			return nil
		}
	}
	in := map[int]bool{}
	var tree []Process
	for grown := true; grown; {
		grown = false
		for _, st := range all {
			belongs := st.PID == root.PID || in[st.PPID] || st.Session == root.PID
			if in[st.PID] || !belongs || st.Starttime < root.Start {
				continue
			}
			in[st.PID], grown = true, true
			if !dead(st) {
				tree = append(tree, Process{PID: st.PID, Start: st.Starttime})
			}
		}
	}
	return tree
}

type channel struct {
	device, inode uint64
}

// strays finds processes in root's container that hold a pipe or terminal of root's standard streams, such as orphans
// that lead their own sessions. The pipe or terminal must have been created for root: it does not count if an older
// process in the container also holds it.
func strays(root Process, container string, all []procfs.ProcStat) []Process {
	if container == "" {
		return nil
	}
	own := map[channel]bool{}
	for fd := range uintptr(3) {
		if c, ok := channelAt(root.PID, fd); ok {
			own[c] = true
		}
	}
	if len(own) == 0 || !root.Alive() {
		return nil
	}
	holders := map[Process][]channel{}
	for _, st := range all {
		p := Process{PID: st.PID, Start: st.Starttime}
		if p == root || dead(st) || !p.InContainer(container) {
			continue
		}
		held := p.held(own)
		if st.Starttime >= root.Start {
			holders[p] = held
			continue
		}
		for _, c := range held {
			delete(own, c)
		}
	}
	var found []Process
	for p, held := range holders {
		if slices.ContainsFunc(held, func(c channel) bool { return own[c] }) {
			found = append(found, p)
		}
	}
	return found
}

func (p Process) held(of map[channel]bool) []channel {
	process, err := procfs.NewProc(p.PID)
	if err != nil {
		return nil // the process has just ended
	}
	fds, err := process.FileDescriptors()
	if err != nil {
		return nil
	}
	var held []channel
	for _, fd := range fds {
		if c, ok := channelAt(p.PID, fd); ok && of[c] {
			held = append(held, c)
		}
	}
	return held
}

// channelAt returns the identity of a pipe or pseudo-terminal behind a descriptor. Named pipes do not count, because
// any process can open them.
func channelAt(pid int, fd uintptr) (channel, bool) {
	path := fmt.Sprintf("/proc/%d/fd/%d", pid, fd)
	target, err := os.Readlink(path)
	if err != nil {
		return channel{}, false
	}
	// AT_STATX_DONT_SYNC avoids requests to a file server, which may be down or run in the container.
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st); err != nil {
		return channel{}, false
	}
	pipe := st.Mode&unix.S_IFMT == unix.S_IFIFO && strings.HasPrefix(target, "pipe:")
	terminal := st.Mode&unix.S_IFMT == unix.S_IFCHR && st.Rdev_major >= 136 && st.Rdev_major <= 143 // in /dev/pts
	return channel{device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino}, pipe || terminal
}
