// Package host accesses the engine's host: a container's cgroup and network namespace, the engine's process, and the
// kernel's limits.
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

var capabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// EngineLacksResource reports whether the engine is known to lack CAP_SYS_RESOURCE, which is required to lower an oom
// score.
func EngineLacksResource(socket string) bool {
	set := boundingSet(socket)
	return set != 0 && set&(1<<unix.CAP_SYS_RESOURCE) == 0
}

// EngineCapabilities returns the capabilities that the engine can grant, or nil if it can grant all or they are unknown.
func EngineCapabilities(socket string) []string {
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil
	}
	return given(boundingSet(socket), string(last))
}

// boundingSet returns the engine's capability bounding set, or 0 if unknown. Processes of the engine cannot have more.
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

// engineScore makes the OOM killer prefer nearly all other processes.
const engineScore = -999

// KeepEngine moves the engine's processes to a cgroup and lowers their oom score, as dockershim's containerManager did.
// The error lists the steps that the host does not allow.
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
		// A kubelet reads these controllers of the runtime's cgroup.
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

// engineProcesses returns the engine and its containerd. With socket activation systemd is the listener; it must not be
// moved.
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
			continue // the process has ended
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

const appArmorProfiles = "/sys/kernel/security/apparmor/profiles"

// AppArmorLoaded reports whether a profile is loaded. It returns true for stacked and namespaced profiles, which are
// not checked, and if the list of loaded profiles cannot be read.
func AppArmorLoaded(profile string) bool { return appArmorLoadedIn(appArmorProfiles, profile) }

func appArmorLoadedIn(path, profile string) bool {
	b, err := os.ReadFile(path)
	if err != nil || strings.ContainsAny(profile, ":&") {
		return true
	}
	for line := range strings.Lines(string(b)) {
		// The format is "NAME (MODE)". A name may contain spaces and brackets.
		line = strings.TrimSuffix(line, "\n")
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == profile && strings.HasSuffix(line, ")") {
			return true
		}
	}
	return false
}

// OOMScore records whether the host forbids a negative oom_score_adj, for example because the engine lacks
// CAP_SYS_RESOURCE. All services share one OOMScore, so that only one start fails.
type OOMScore struct {
	Log *slog.Logger // nil: the refusal is not logged
	// Known reports whether the host is known to forbid a negative score, so that not even one start fails. May be nil.
	Known   func() bool
	ask     sync.Once
	refused atomic.Bool
}

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

// Refused reports whether a start may have failed because the host forbids the score. The caller retries with the score
// from Allowed.
func (o *OOMScore) Refused(asked int, err error) bool {
	if asked >= 0 || err == nil {
		return false
	}
	// Old versions of runc lose the child that writes the score before it can report the reason.
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
