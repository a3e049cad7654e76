package diagnose

import (
	"errors"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/hostproc"
	"github.com/crishim/crishim/internal/lazyregexp"
)

// oomKill is an OOM kill: a process that the kernel ended because memory was short.
type oomKill struct {
	At       time.Time
	Process  string // the name of the process
	Pid      int
	Group    string // the cgroup of the process
	LimitOf  string // the cgroup whose limit was reached; "": the whole node was out of memory
	Usage    uint64 // memory of that cgroup in bytes; 0 if not in the log
	Limit    uint64
	Resident uint64 // memory of the process
	All      bool   // all processes of the container were ended with it, by memory.oom.group
}

// Patterns for the kernel's log lines about an OOM kill, in the order of the lines. In these lines, a container chooses
// only the names of its processes and the names of cgroups below its own. A process name has at most 15 bytes, and the
// patterns take no other value from it.
var (
	usageLine = lazyregexp.New(`^memory: usage (\d+)kB, limit (\d+)kB, failcnt \d+$`)
	groupLine = lazyregexp.New(`^oom-kill:constraint=\w+,nodemask=[^=]*,cpuset=[^,=]*,mems_allowed=[-\d,]*,(?:oom_memcg=([^,]*)|global_oom),task_memcg=([^,]*),task=.{0,15},pid=(\d+),uid=\d+$`)
	oldLine   = lazyregexp.New(`^Task in (\S+) killed as a result of limit of (\S+)$`)
	killLine  = lazyregexp.New(`^(?:Memory cgroup out of memory|Out of memory): Killed process (\d+) \((.{0,15})\)(?: total-vm:\d+kB, anon-rss:(\d+)kB, file-rss:\d+kB, shmem-rss:(\d+)kB)?`)
	allLine   = lazyregexp.New(`^Tasks in (\S+) are going to be killed due to memory\.oom\.group set$`)
)

// firstFacility is the lowest priority value of a record that the kernel did not write. A priority value is 8 times the
// facility plus the level, and the kernel's facility is 0.
const firstFacility = 8

// kernelLog collects the kills in records of the kernel log.
type kernelLog struct {
	booted time.Time
	usage  [2]uint64
	last   oomKill // incomplete: its last line is still to come
	kills  []oomKill
}

// record parses a record of /dev/kmsg. It ignores records that a process has written, as a privileged container may: the
// kernel gives them another facility.
func (l *kernelLog) record(text string) {
	head, line, _ := strings.Cut(text, ";")
	fields := strings.Split(head, ",")
	line, _, _ = strings.Cut(line, "\n")
	priority, err := strconv.Atoi(fields[0])
	if err != nil || priority >= firstFacility || len(fields) < 3 {
		return
	}
	number := func(text string) uint64 {
		n, _ := strconv.ParseUint(text, 10, 64) // 0 if the line has no number
		return n
	}
	if m := usageLine.FindStringSubmatch(line); m != nil {
		l.usage = [2]uint64{number(m[1]) << 10, number(m[2]) << 10}
		return
	}
	if m := groupLine.FindStringSubmatch(line); m != nil {
		l.last = oomKill{LimitOf: m[1], Group: m[2], Pid: int(number(m[3]))}
		return
	}
	if m := oldLine.FindStringSubmatch(line); m != nil {
		l.last = oomKill{Group: m[1], LimitOf: m[2]}
		return
	}
	if m := allLine.FindStringSubmatch(line); m != nil && len(l.kills) > 0 {
		last := &l.kills[len(l.kills)-1]
		last.All = ownGroup(m[1]) && strings.HasPrefix(last.Group+"/", m[1]+"/")
		return
	}
	m := killLine.FindStringSubmatch(line)
	if m == nil || l.last.Group == "" || l.last.Pid != 0 && l.last.Pid != int(number(m[1])) {
		return
	}
	kill := l.last
	kill.Pid, kill.Process, kill.Resident = int(number(m[1])), m[2], (number(m[3])+number(m[4]))<<10
	if kill.LimitOf != "" {
		kill.Usage, kill.Limit = l.usage[0], l.usage[1]
	}
	kill.At = l.booted.Add(time.Duration(number(fields[2])) * time.Microsecond)
	l.kills, l.last, l.usage = append(l.kills, kill), oomKill{}, [2]uint64{}
}

// ownGroup reports whether a cgroup belongs to a container as a whole, neither to its pod nor to a child of the container.
func ownGroup(group string) bool {
	return hostproc.ContainerOf(group) != "" && hostproc.ContainerOf(path.Dir(group)) == ""
}

// kernelKills reads the kills in the kernel's log buffer.
func (h Host) kernelKills(booted time.Time) ([]oomKill, error) {
	f, err := os.OpenFile(h.path("/dev/kmsg"), os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	log := kernelLog{booted: booted}
	record := make([]byte, 16<<10)
	var failed error
	err = raw.Control(func(fd uintptr) {
		for {
			n, readErr := unix.Read(int(fd), record)
			switch {
			case errors.Is(readErr, syscall.EPIPE), errors.Is(readErr, syscall.EINTR): // EPIPE: the kernel has overwritten records that were not read yet
				continue
			case errors.Is(readErr, syscall.EAGAIN), readErr == nil && n == 0:
				return
			case readErr != nil:
				failed = readErr
				return
			}
			for line := range strings.SplitAfterSeq(string(record[:n]), "\n") { // a read of /dev/kmsg returns one record; a test file has several
				log.record(strings.TrimSuffix(line, "\n"))
			}
		}
	})
	return slices.Clip(log.kills), errors.Join(err, failed)
}
