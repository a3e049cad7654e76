// Package host deals with what the engine's host is, has and forbids: a container's
// cgroup and namespace there, the engine's own process, and what its kernel allows.
package host

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/opencontainers/cgroups"
	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
)

// listener returns the process that listens on a unix socket of this host, as the
// kernel knows it.
func listener(socket string) (int, error) {
	conn, err := net.Dial("unix", socket)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var peerErr error
	err = raw.Control(func(fd uintptr) { peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err = errors.Join(err, peerErr); err != nil {
		return 0, err
	}
	return int(peer.Pid), nil
}

// capabilities are the kernel's, by number.
var capabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// EngineLacksResource reports whether the engine behind a unix socket on this host
// is known to run without CAP_SYS_RESOURCE, which lowering an oom score takes. Whatever
// cannot be found out counts as no.
func EngineLacksResource(socket string) bool {
	set := boundingSet(socket)
	return set != 0 && set&(1<<unix.CAP_SYS_RESOURCE) == 0
}

// EngineCapabilities lists those that the engine behind a unix socket on this host
// can give to a container, where it is known that these are not all.
func EngineCapabilities(socket string) []string {
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil
	}
	return given(boundingSet(socket), string(last))
}

// boundingSet is of the engine's capabilities, 0 where it is not known: a process can have
// no capability outside of it, nor can what it starts.
func boundingSet(socket string) uint64 {
	pid, err := listener(socket)
	if err != nil {
		return 0
	}
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0
	}
	status, err := process.NewStatus()
	if err != nil {
		return 0
	}
	return status.CapBnd
}

// given lists the capabilities of a bounding set that has not all up to the last.
func given(set uint64, last string) []string {
	n, err := strconv.Atoi(strings.TrimSpace(last))
	if err != nil || set == 0 {
		return nil
	}
	var names []string
	for i, name := range capabilities {
		if i <= n && set&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if len(names) == min(n+1, len(capabilities)) {
		return nil
	}
	return names
}

// engineScore is the oom score of the engine's processes: the kernel takes
// nearly everything else before them.
const engineScore = -999

// KeepEngine does what dockershim's container manager did: it puts the processes of the
// engine behind a unix socket into a cgroup, which is made where it is missing, and has the
// kernel spare them when memory is short. It does what the host allows and returns what it
// does not. dockershim had a containerManager for it.
func KeepEngine(socket, group string) error {
	pid, err := listener(socket)
	if err != nil {
		return err
	}
	return keepEngine(procfs.DefaultMountPoint, cgroupRoot, pid, group)
}

func keepEngine(proc, root string, pid int, group string) error {
	pids, err := engineProcesses(proc, pid)
	if err != nil {
		return err
	}
	dirs := []string{filepath.Join(root, group)}
	if mounted := hierarchies(root); mounted["cgroup.controllers"] == "" {
		dirs = nil
		// Those that a kubelet reads of the runtime's cgroup. The others stay as they were
		// when the engine started.
		for _, controller := range []string{"cpu", "cpuacct", "memory"} {
			if dir := mounted[controller]; dir != "" {
				dirs = append(dirs, filepath.Join(dir, group))
			}
		}
	}
	var errs []error
	for _, dir := range dirs {
		err := os.MkdirAll(dir, 0o755)
		for i := 0; err == nil && i < len(pids); i++ {
			err = cgroups.WriteCgroupProc(dir, pids[i])
		}
		errs = append(errs, err)
	}
	for _, pid := range pids {
		errs = append(errs, os.WriteFile(filepath.Join(proc, strconv.Itoa(pid), "oom_score_adj"), []byte(strconv.Itoa(engineScore)), 0o644))
	}
	return errors.Join(errs...)
}

// engineProcesses returns the engine and the containerd that it has started. The
// shims of containers stay where they are. With socket activation it is systemd
// that listens, which must not be touched: then the engine is looked for.
func engineProcesses(proc string, pid int) ([]int, error) {
	fs, err := procfs.NewFS(proc)
	if err != nil {
		return nil, err
	}
	processes, err := fs.AllProcs()
	if err != nil {
		return nil, err
	}
	var listens string
	var engines []int
	all := make([]procfs.ProcStat, 0, len(processes))
	for _, p := range processes {
		st, err := p.Stat()
		if err != nil {
			continue // it has ended
		}
		all = append(all, st)
		if st.PID == pid {
			listens = st.Comm
		}
		if st.Comm == "dockerd" {
			engines = append(engines, st.PID)
		}
	}
	if listens != "dockerd" {
		if len(engines) != 1 {
			return nil, fmt.Errorf("%s listens for the engine, and there are %d processes named dockerd", listens, len(engines))
		}
		pid = engines[0]
	}
	found := []int{pid}
	for _, st := range all {
		if st.PPID == pid && st.Comm == "containerd" {
			found = append(found, st.PID)
		}
	}
	slices.Sort(found)
	return found, nil
}

// appArmorProfiles is where the kernel lists the profiles that are loaded.
const appArmorProfiles = "/sys/kernel/security/apparmor/profiles"

// AppArmorLoaded reports whether this host's kernel has a profile of that name. A
// list that cannot be read, or a name of several profiles or of a namespace,
// decides nothing: the start of the container will.
func AppArmorLoaded(profile string) bool { return appArmorLoadedIn(appArmorProfiles, profile) }

func appArmorLoadedIn(path, profile string) bool {
	b, err := os.ReadFile(path)
	if err != nil || strings.ContainsAny(profile, ":&") {
		return true
	}
	for line := range strings.Lines(string(b)) {
		// "NAME (MODE)", and a name may hold a space and a bracket.
		line = strings.TrimSuffix(line, "\n")
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == profile && strings.HasSuffix(line, ")") {
			return true
		}
	}
	return false
}

// OOMScore remembers whether the engine's host lets containers have a negative
// oom_score_adj. A host whose root lacks CAP_SYS_RESOURCE does not, and then no
// container that asks for one can start. All services of a shim share one, so the
// refusal is met once and logged once.
type OOMScore struct {
	Log *slog.Logger // nil: the refusal is not logged
	// Known, where it is set, is asked once whether the host is known to refuse.
	// It saves the container that would be made only to find out.
	Known   func() bool
	ask     sync.Once
	refused atomic.Bool
}

// Allowed returns the value to ask the engine for.
func (o *OOMScore) Allowed(wanted int) int {
	if wanted >= 0 {
		return wanted
	}
	o.ask.Do(func() {
		if o.Known != nil && o.Known() {
			o.refuse(wanted)
		}
	})
	if o.refused.Load() {
		return 0
	}
	return wanted
}

// Refused reports whether err, the answer to a start with the value asked, may
// mean that the host forbids it. The caller starts again with Allowed's value
// and reports that start's error if it fails as well.
func (o *OOMScore) Refused(asked int, err error) bool {
	if asked >= 0 || err == nil {
		return false
	}
	// runc has two texts for it: old versions lose the child that writes the score before it
	// can tell why.
	if text := err.Error(); !strings.Contains(text, "oom_score_adj") && !strings.Contains(text, "can't get final child's PID from pipe") {
		return false
	}
	o.refuse(asked)
	return true
}

func (o *OOMScore) refuse(asked int) {
	if !o.refused.Swap(true) && o.Log != nil {
		o.Log.Warn("the host forbids negative oom scores, containers run with 0 instead", "asked", asked)
	}
}
