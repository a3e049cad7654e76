package proctree

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// ErrGone says that a process has ended, or that its pid now belongs to another.
var ErrGone = errors.New("process is gone")

// Process names one process of this host for all time: a pid may be used again,
// but not with the same start time.
type Process struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks after boot
}

// stat is the part of /proc/PID/stat that this package needs.
type stat struct {
	pid, ppid, session int
	state              byte
	start              uint64
}

// Find returns the process that has this pid now.
func Find(pid int) (Process, error) {
	st, err := readStat(pid)
	if err != nil {
		return Process{}, err
	}
	return Process{PID: pid, Start: st.start}, nil
}

// Alive says whether the process still runs. A zombie does not.
func (p Process) Alive() bool {
	st, err := readStat(p.PID)
	return err == nil && st.start == p.Start && !st.dead()
}

// InContainer reports whether the process is in a control group named for the
// container. It is how a pid from an engine is known to be a pid of this host.
func (p Process) InContainer(id string) bool {
	if !p.Alive() {
		return false
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", p.PID))
	return err == nil && Named(string(groups), id) && p.Alive()
}

// containerIDs are whole ids. Part of one, or another text from /proc/PID/cgroup,
// would be found in the groups of other processes.
var containerIDs = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Named reports whether one of the control groups' directories has the container's
// id in its name, as in /docker/ID, docker-ID.scope or system.slice:docker:ID, with no
// more letters or digits around it.
func Named(groups, id string) bool {
	if !containerIDs.MatchString(id) {
		return false
	}
	for _, word := range strings.FieldsFunc(groups, func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		if word == id {
			return true
		}
	}
	return false
}

func (s stat) dead() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

func readStat(pid int) (stat, error) {
	if pid <= 0 {
		return stat{}, ErrGone
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, fmt.Errorf("process %d: %w", pid, errors.Join(ErrGone, err))
	}
	return parseStat(string(text))
}

// parseStat reads the line of /proc/PID/stat. The command in it is in brackets
// and may hold anything, brackets and spaces too, so the last one counts.
func parseStat(text string) (stat, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return stat{}, fmt.Errorf("malformed stat line %q", text)
	}
	fields := strings.Fields(text[end+1:])
	if len(fields) < 20 || len(fields[0]) != 1 {
		return stat{}, fmt.Errorf("short stat line %q", text)
	}
	s := stat{state: fields[0][0]}
	var errs [4]error
	s.pid, errs[0] = strconv.Atoi(strings.TrimSpace(text[:open]))
	s.ppid, errs[1] = strconv.Atoi(fields[1])
	s.session, errs[2] = strconv.Atoi(fields[3])
	s.start, errs[3] = strconv.ParseUint(fields[19], 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return stat{}, fmt.Errorf("stat line %q: %w", text, err)
	}
	return s, nil
}

// snapshot reads every process that is visible; those that end meanwhile are left out.
func snapshot() ([]stat, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	all := make([]stat, 0, len(entries))
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if st, err := readStat(pid); err == nil {
			all = append(all, st)
		}
	}
	return all, nil
}
