package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// capSysResource is the capability that lowering an oom score takes.
const capSysResource = 24

// EngineLacksResource says whether the engine behind a unix socket on this host
// is known to run without CAP_SYS_RESOURCE. The kernel tells which process
// listens; whatever cannot be found out counts as no.
func EngineLacksResource(socket string) bool {
	pid, err := listener(socket)
	if err != nil {
		return false
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && lacks(string(status), capSysResource)
}

// lacks reads the bounding set: a process can have no capability outside of it,
// nor can what it starts.
func lacks(status string, capability uint) bool {
	for line := range strings.Lines(status) {
		if set, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return err == nil && bits&(1<<capability) == 0
		}
	}
	return false
}
