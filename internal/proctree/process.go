// Package proctree finds, watches and kills processes on this host through /proc.
//
// A [Process] is a pid with its start time, which identifies it uniquely. [Kill] kills a process with its descendants,
// and [Process.Wait] waits for its end, without polling if the kernel supports pidfds. The package does not talk to an
// engine. Callers use [Process.InContainer] to verify that the pid from an engine belongs to this host.
package proctree

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/lazyregexp"
)

var ErrGone = errors.New("process is gone")

// Process identifies a process uniquely: a pid is not reused with the same start time.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot
}

func Find(pid int) (Process, error) {
	st, err := ReadStat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: st.Starttime}, nil
}

// ReadStat reads /proc/PID/stat. The error is ErrGone without such a process.
func ReadStat(pid int) (procfs.ProcStat, error) {
	if pid <= 0 {
		return procfs.ProcStat{}, ErrGone
	}
	var st procfs.ProcStat
	process, err := procfs.NewProc(pid)
	if err == nil {
		st, err = process.Stat()
	}
	if path := new(fs.PathError); errors.As(err, &path) && !errors.Is(err, fs.ErrPermission) {
		err = errors.Join(ErrGone, err)
	}
	if err != nil {
		return procfs.ProcStat{}, fmt.Errorf("process %d: %w", pid, err)
	}
	return st, nil
}

func dead(st procfs.ProcStat) bool { return strings.Contains("ZXx", st.State) }

// Alive reports whether the process still runs. A zombie does not.
func (p Process) Alive() bool {
	st, err := ReadStat(p.PID)
	return err == nil && st.Starttime == p.Start && !dead(st)
}

// InContainer verifies by the cgroup's name that a pid from an engine belongs to this host.
func (p Process) InContainer(id string) bool {
	if !p.Alive() {
		return false
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	return err == nil && Named(string(groups), id) && p.Alive()
}

// containerIDs matches full ids, because a short id might occur in other cgroups.
var containerIDs = lazyregexp.New(`^[0-9a-f]{64}$`)

// Named reports whether a cgroup's directory has the id in its name, as in /docker/ID, docker-ID.scope or
// system.slice:docker:ID.
func Named(groups, id string) bool {
	words := strings.FieldsFunc(groups, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return containerIDs.MatchString(id) && slices.Contains(words, id)
}

// signal does not affect a new process with the same pid if the kernel supports pidfds, which os.Process uses.
func (p Process) signal(sig unix.Signal) error {
	process, err := os.FindProcess(p.PID)
	if err == nil && p.Alive() {
		err = process.Signal(sig)
	}
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal process %d: %w", p.PID, err)
	}
	return nil
}

const pollInterval = 20 * time.Millisecond

// Wait returns nil when the process has ended, or the cause of ctx. It uses no thread, because the runtime's poller
// watches a pidfd. Without support for pidfds, Wait polls /proc.
func (p Process) Wait(ctx context.Context) error {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return p.poll(ctx)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if f.SetReadDeadline(time.Time{}) != nil || !p.Alive() { // the poller does not support pidfds, or the pid was reused
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

func BootID() string {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(id))
}

// Scope identifies where a pid is valid: "BOOT PID-NAMESPACE", or "" if unknown.
func Scope() string {
	boot := BootID()
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || boot == "" {
		return ""
	}
	return boot + " " + namespace
}

// Mark returns the process with its scope as text, for labels and annotations. It is "" if the scope is unknown.
func (p Process) Mark() string {
	scope := Scope()
	if scope == "" {
		return ""
	}
	return fmt.Sprintf("%s %d %d", scope, p.PID, p.Start)
}

// HasEnded reports whether the marked process is known to have ended. In another scope, such as another machine or
// container, this is unknown.
func HasEnded(mark string) bool {
	scope := Scope()
	rest, here := strings.CutPrefix(mark, scope+" ")
	var p Process
	if _, err := fmt.Sscanf(rest, "%d %d", &p.PID, &p.Start); err != nil || !here || scope == "" {
		return false
	}
	return !p.Alive()
}
