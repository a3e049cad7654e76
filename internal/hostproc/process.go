// Package hostproc reads from /proc what shows the owner of a process or a socket: control groups, namespaces,
// tables of sockets.
//
// Nothing here asks a runtime, and nothing trusts a container. What counts is what the kernel keeps outside it:
// the path of a control group, inodes of namespaces and sockets. Texts that a container chooses, such as the names
// of processes, are only for showing.
package hostproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/crishim/crishim/internal/proctree"
)

// Process is a process as the kernel describes it.
type Process struct {
	proctree.Process
	Parent  int
	Thread  int    // the thread that was asked for, where it is not the first one of the process
	Command string // its name, which it chooses itself
	State   string // R, S, D, Z, ...
	Inner   int    // its pid in the innermost namespace, where that is not this one; else 0
	Kernel  bool   // it is a thread of the kernel
	Group   Group
}

// HostNamespace returns the inode of a namespace of the host. Where the first process may not be looked at, as in
// some sandboxes, it is our own.
func HostNamespace(kind string) (uint64, error) {
	inode, err := Process{Process: proctree.Process{PID: 1}}.Namespace(kind)
	if errors.Is(err, fs.ErrPermission) {
		return Process{Process: proctree.Process{PID: os.Getpid()}}.Namespace(kind)
	}
	return inode, err
}

// ErrGone is about a process that is not there.
var ErrGone = proctree.ErrGone

// Look describes the process with this pid, or that a thread with this id is of.
func Look(pid int) (Process, error) {
	p := Process{Process: proctree.Process{PID: pid}}
	status, err := os.ReadFile(path(pid, "status"))
	if err == nil {
		inner := strings.Fields(statusField(status, "NSpid"))
		if len(inner) > 1 {
			p.Inner, _ = strconv.Atoi(inner[len(inner)-1])
		}
		if leader, _ := strconv.Atoi(statusField(status, "Tgid")); leader != 0 && leader != pid {
			p.PID, p.Thread, p.Inner = leader, pid, 0
		}
	}
	st, err := readStat(p.PID)
	if err != nil {
		return Process{}, err
	}
	p.Start, p.Parent, p.Command, p.State = st.Starttime, st.PPID, st.Comm, st.State
	p.Kernel = st.Flags&kernelThread != 0
	groups, err := os.ReadFile(path(p.PID, "cgroup"))
	if err != nil {
		return Process{}, gone(p.PID, err)
	}
	p.Group = ParseGroup(string(groups))
	// Had it ended in between, the groups might be those of another process with its pid.
	if again, err := readStat(p.PID); err != nil || again.Starttime != p.Start {
		return Process{}, fmt.Errorf("process %d: %w", p.PID, ErrGone)
	}
	return p, nil
}

// kernelThread is PF_KTHREAD.
const kernelThread = 0x00200000

func path(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

func readStat(pid int) (procfs.ProcStat, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return procfs.ProcStat{}, gone(pid, err)
	}
	st, err := process.Stat()
	if err != nil {
		return procfs.ProcStat{}, gone(pid, err)
	}
	return st, nil
}

// gone is the error of a file in /proc: it goes with its process.
func gone(pid int, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return err
	}
	return fmt.Errorf("process %d: %w", pid, ErrGone)
}

func statusField(status []byte, name string) string {
	_, rest, _ := strings.Cut("\n"+string(status), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// Arguments returns the command line of a process, which may be its own invention.
func (p Process) Arguments() []string {
	text, err := os.ReadFile(path(p.PID, "cmdline"))
	if err != nil || !p.Alive() {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
}

// All describes all processes; what ends meanwhile is left out.
func All() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, err := Look(pid); err == nil {
			all = append(all, p)
		}
	}
	return all, nil
}

// Namespace returns the inode of a namespace of a process: net, mnt, pid, ...; it needs root for what others run.
func (p Process) Namespace(kind string) (uint64, error) {
	link, err := os.Readlink(path(p.PID, "ns/"+kind))
	if err != nil {
		return 0, err
	}
	_, number, _ := strings.Cut(link, "[")
	return strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
}
