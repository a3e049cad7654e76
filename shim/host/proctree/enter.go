package proctree

import (
	"bytes"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is the unit in which the kernel tells start times, on every machine.
const ticksPerSecond = 100

// Now is the present as a start time.
func Now() (uint64, error) {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return 0, fmt.Errorf("time since boot: %w", err)
	}
	return uint64(now.Sec)*ticksPerSecond + uint64(now.Nsec)*ticksPerSecond/1e9, nil
}

// Entered lists the processes that were put into a container from outside, as an
// exec's are, and started at since or later: their parent is not in the container.
func Entered(container string, since uint64) ([]Process, error) {
	all, err := snapshot()
	if err != nil {
		return nil, err
	}
	var found []Process
	for _, st := range all {
		p := Process{PID: st.pid, Start: st.start}
		if st.start < since || st.dead() || !p.InContainer(container) {
			continue
		}
		if parent, err := Find(st.ppid); err == nil && parent.InContainer(container) {
			continue
		}
		found = append(found, p)
	}
	return found, nil
}

// Args are the command line of a process; none when it is gone.
func (p Process) Args() []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID))
	if err != nil || len(text) == 0 || !p.Alive() {
		return nil
	}
	return strings.Split(string(bytes.TrimSuffix(text, []byte{0})), "\x00")
}
