// Package hostproc finds the owner of a process or socket in /proc: cgroups, namespaces, socket tables.
//
// The package does not query a runtime and does not trust containers. It relies on data that the kernel keeps outside
// containers: cgroup paths and the inodes of namespaces and sockets. Texts that a container controls, such as process
// names, are for display only.
package hostproc

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/crishim/crishim/internal/proctree"
)

type Process struct {
	proctree.Process
	Parent  int
	Thread  int    // the requested thread, if it is not the main thread
	Command string // name, chosen by the process itself
	State   string // R, S, D, Z, ...
	Inner   int    // pid in the innermost namespace; 0 if that is the current one or Thread is set
	Kernel  bool   // kernel thread
	Group   Group
}

// HostNamespace returns the inode of a namespace of the host. If pid 1 cannot be inspected, as in some sandboxes, it
// returns the namespace of this process.
func HostNamespace(kind string) (uint64, error) {
	inode, err := Process{Process: proctree.Process{PID: 1}}.Namespace(kind)
	if errors.Is(err, fs.ErrPermission) {
		return Process{Process: proctree.Process{PID: os.Getpid()}}.Namespace(kind)
	}
	return inode, err
}

// Look returns the process with this pid, or the process of the thread with this id.
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
	st, err := proctree.ReadStat(p.PID)
	if err != nil {
		return Process{}, err
	}
	p.Start, p.Parent, p.Command, p.State = st.Starttime, st.PPID, st.Comm, st.State
	p.Kernel = st.Flags&kernelThread != 0
	groups, err := os.ReadFile(path(p.PID, "cgroup"))
	if errors.Is(err, fs.ErrPermission) {
		return Process{}, err
	}
	// If the process ended meanwhile, the cgroups may belong to a new process with the same pid.
	if again, statErr := proctree.ReadStat(p.PID); err != nil || statErr != nil || again.Starttime != p.Start {
		return Process{}, fmt.Errorf("process %d: %w", p.PID, proctree.ErrGone)
	}
	p.Group = parseGroup(string(groups))
	return p, nil
}

// kernelThread is PF_KTHREAD.
const kernelThread = 0x00200000

func path(pid int, file string) string { return "/proc/" + strconv.Itoa(pid) + "/" + file }

func statusField(status []byte, name string) string {
	_, rest, _ := strings.Cut("\n"+string(status), "\n"+name+":")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(line)
}

// Argument returns the word after a flag on the command line of a process, "" without it. It ignores FLAG=VALUE. The
// process can change its command line.
func (p Process) Argument(flag string) string {
	text, err := os.ReadFile(path(p.PID, "cmdline"))
	args := strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	if i := slices.Index(args, flag) + 1; err == nil && p.Alive() && i > 0 && i < len(args) {
		return args[i]
	}
	return ""
}

// DockerProxy is the program by which Docker forwards ports.
const DockerProxy = "docker-proxy"

// All returns all processes. It skips processes that end during the call, and processes that /proc hides from the user.
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

// Namespace returns the inode of a process's namespace, such as net, mnt or pid. Only root can inspect processes of
// other users.
func (p Process) Namespace(kind string) (uint64, error) {
	link, err := os.Readlink(path(p.PID, "ns/"+kind))
	if err != nil {
		return 0, err
	}
	_, number, _ := strings.Cut(link, "[")
	return strconv.ParseUint(strings.TrimSuffix(number, "]"), 10, 64)
}
