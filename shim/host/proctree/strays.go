package proctree

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// channel is a pipe or a terminal, whatever name a process has for it.
type channel struct {
	device, inode uint64
}

// strays finds what root has started and lost: processes of its container that
// lead sessions of their own, and whose parent is gone, but which still hold one
// of the pipes or the terminal that were made for root. One that has let go of
// them is not found. What an older process of the container holds too was not
// made for root: it may have opened the container's own output.
func strays(root Process, container string, all []stat) []Process {
	if container == "" {
		return nil
	}
	own := map[channel]bool{}
	for fd := range 3 {
		if c, ok := channelAt(root.PID, strconv.Itoa(fd)); ok {
			own[c] = true
		}
	}
	if len(own) == 0 || !root.Alive() {
		return nil
	}
	holders := map[Process][]channel{}
	for _, st := range all {
		p := Process{PID: st.pid, Start: st.start}
		if p == root || st.dead() || !p.InContainer(container) {
			continue
		}
		held := p.held(own)
		if st.start >= root.Start {
			holders[p] = held
			continue
		}
		for _, c := range held {
			delete(own, c)
		}
	}
	var found []Process
	for p, held := range holders {
		for _, c := range held {
			if own[c] {
				found = append(found, p)
				break
			}
		}
	}
	return found
}

// held lists which of the channels a process has open.
func (p Process) held(of map[channel]bool) []channel {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID))
	if err != nil {
		return nil // it has just ended
	}
	var held []channel
	for _, e := range entries {
		if c, ok := channelAt(p.PID, e.Name()); ok && of[c] {
			held = append(held, c)
		}
	}
	return held
}

// channelAt says which pipe or pseudo-terminal a descriptor of a process is.
// Pipes with a name are in the file system for everybody, and do not count.
func channelAt(pid int, fd string) (channel, bool) {
	path := fmt.Sprintf("/proc/%d/fd/%s", pid, fd)
	target, err := os.Readlink(path)
	if err != nil {
		return channel{}, false
	}
	// The server of a file system is not asked: it may be away, or be the container's.
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &st); err != nil {
		return channel{}, false
	}
	pipe := st.Mode&unix.S_IFMT == unix.S_IFIFO && strings.HasPrefix(target, "pipe:")
	terminal := st.Mode&unix.S_IFMT == unix.S_IFCHR && isPseudoTerminal(st.Rdev_major)
	return channel{device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino}, pipe || terminal
}

// isPseudoTerminal knows the device numbers of /dev/pts.
func isPseudoTerminal(major uint32) bool { return major >= 136 && major <= 143 }
