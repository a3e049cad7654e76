package proctree

import (
	"fmt"
	"os"
	"strings"
)

// BootID returns what the kernel calls this boot of the machine, "" where it does not tell.
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
