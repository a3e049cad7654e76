// Package proctree finds, watches and ends processes on this host by what the
// kernel has about them in /proc.
//
// A [Process] is a pid together with its start time, which never names two
// processes; [Kill] ends one with everything it started, [Process.Wait] waits
// for its end without polling. Nothing here talks to an engine, and nothing
// here works on processes of another host: the caller proves with
// [Process.InContainer] that the pid an engine reported is one of this host.
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

// Process names one process and never another: a pid is not used again with the same start time.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
}

func Find(pid int) (Process, error) {
	st, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: st.Starttime}, nil
}

func readStat(pid int) (procfs.ProcStat, error) {
	if pid <= 0 {
		return procfs.ProcStat{}, ErrGone
	}
	var st procfs.ProcStat
	process, err := procfs.NewProc(pid)
	if err == nil {
		st, err = process.Stat()
	}
	if path := new(fs.PathError); errors.As(err, &path) {
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
	st, err := readStat(p.PID)
	return err == nil && st.Starttime == p.Start && !dead(st)
}

// InContainer proves that a pid from an engine is one of this host, by the name of its control group.
func (p Process) InContainer(id string) bool {
	if !p.Alive() {
		return false
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	return err == nil && Named(string(groups), id) && p.Alive()
}

// containerIDs are whole ids: part of one would be found in other groups.
var containerIDs = lazyregexp.New(`^[0-9a-f]{64}$`)

// Named reports whether a group's directory has the id in its name, as in /docker/ID, docker-ID.scope or
// system.slice:docker:ID.
func Named(groups, id string) bool {
	words := strings.FieldsFunc(groups, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	return containerIDs.MatchString(id) && slices.Contains(words, id)
}

// signal does not hit a process that got the pid later: os.Process holds a pidfd where the kernel has them.
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

// Wait returns nil when the process has ended, or the cause of ctx.
// It costs no thread: the runtime's poller watches a pidfd.
func (p Process) Wait(ctx context.Context) error {
	fd, err := unix.PidfdOpen(p.PID, unix.PIDFD_NONBLOCK)
	if err != nil {
		return p.poll(ctx)
	}
	f := os.NewFile(uintptr(fd), "pidfd")
	defer f.Close()
	if f.SetReadDeadline(time.Time{}) != nil || !p.Alive() { // the poller does not take it, or it is another process's
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

// Scope returns where a pid names the processes that it names here: "BOOT PID-NAMESPACE", "" where /proc does not tell.
func Scope() string {
	boot := BootID()
	namespace, err := os.Readlink("/proc/self/ns/pid")
	if err != nil || boot == "" {
		return ""
	}
	return boot + " " + namespace
}

// Mark returns the process in a form to keep outside this machine's memory, in a label or an annotation: its scope, pid
// and start. It is "" where the scope is not known.
func (p Process) Mark() string {
	scope := Scope()
	if scope == "" {
		return ""
	}
	return fmt.Sprintf("%s %d %d", scope, p.PID, p.Start)
}

// HasEnded reports whether the process of a mark is known to have ended. Of one in another scope, which may be another
// machine, or another container, that is not known.
func HasEnded(mark string) bool {
	scope := Scope()
	rest, here := strings.CutPrefix(mark, scope+" ")
	var p Process
	if _, err := fmt.Sscanf(rest, "%d %d", &p.PID, &p.Start); err != nil || !here || scope == "" {
		return false
	}
	return !p.Alive()
}
