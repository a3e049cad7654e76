package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// capSysResource is the capability that lowering an oom score takes.
const capSysResource = 24

// capabilities are the kernel's, by number.
var capabilities = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE
	NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT
	SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE
	MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

// EngineLacksResource says whether the engine behind a unix socket on this host
// is known to run without CAP_SYS_RESOURCE. The kernel tells which process
// listens; whatever cannot be found out counts as no.
func EngineLacksResource(socket string) bool {
	status, err := engineStatus(socket)
	return err == nil && lacks(status, capSysResource)
}

// EngineCapabilities are those that the engine behind a unix socket on this
// host can give to a container, where it is known that these are not all.
func EngineCapabilities(socket string) []string {
	status, err := engineStatus(socket)
	if err != nil {
		return nil
	}
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		return nil
	}
	return given(status, string(last))
}

func engineStatus(socket string) (string, error) {
	pid, err := listener(socket)
	if err != nil {
		return "", err
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return string(status), err
}

// given are the capabilities of a bounding set that has not all up to the last.
func given(status, last string) []string {
	n, err := strconv.Atoi(strings.TrimSpace(last))
	set, ok := boundingSet(status)
	if err != nil || !ok {
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

// lacks says whether a capability is known not to be in the bounding set.
func lacks(status string, capability uint) bool {
	set, ok := boundingSet(status)
	return ok && set&(1<<capability) == 0
}

// boundingSet reads it from a process's status: a process can have no capability
// outside of it, nor can what it starts.
func boundingSet(status string) (uint64, bool) {
	for line := range strings.Lines(status) {
		if set, ok := strings.CutPrefix(line, "CapBnd:"); ok {
			bits, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
			return bits, err == nil
		}
	}
	return 0, false
}
