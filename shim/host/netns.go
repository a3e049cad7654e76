package host

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// nsfsMagic is the file system of namespace files.
const nsfsMagic = 0x6e736673

// NetNS gives the path of a container's network namespace on this host, "" when
// the engine runs on another one or the container has ended. The file that the
// engine keeps is preferred, because a process id may come to mean another
// process.
func NetNS(containerID, engineFile string, pid int) string {
	if isNamespace(engineFile) {
		return engineFile
	}
	if !IsContainerProcess(pid, containerID) {
		return ""
	}
	if path := fmt.Sprintf("/proc/%d/ns/net", pid); isNamespace(path) {
		return path
	}
	return ""
}

// UnsharedNetNS gives the path of the namespace that a container's process made
// itself, of a container that the engine started in its own, the host's; "" where
// the process has not done so, has ended or cannot be seen. It never gives the
// host's: that the process has no capability any more, which it drops after leaving
// the namespace, must say the same as a comparison with what may be the host's.
func UnsharedNetNS(containerID, engineFile string, pid int) string {
	path := fmt.Sprintf("/proc/%d/ns/net", pid)
	if !IsContainerProcess(pid, containerID) || !powerless(pid) || !isNamespace(path) {
		return ""
	}
	for _, hosts := range []string{"/proc/thread-self/ns/net", "/proc/1/ns/net", engineFile} {
		if hosts != "" && sameFile(path, hosts) {
			return ""
		}
	}
	return path
}

// powerless says whether a process has no capability, and cannot get one back.
func powerless(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return false
	}
	sets := 0
	for line := range strings.Lines(string(status)) {
		name, set, _ := strings.Cut(line, ":")
		if name != "CapInh" && name != "CapPrm" && name != "CapEff" {
			continue
		}
		if strings.Trim(set, " \t\n0") != "" {
			return false
		}
		sets++
	}
	return sets == 3
}

// sameFile is false for what cannot be looked at, but not where that is the first.
func sameFile(path, other string) bool {
	a, err := os.Stat(path)
	if err != nil {
		return true
	}
	b, err := os.Stat(other)
	return err == nil && os.SameFile(a, b)
}

func isNamespace(path string) bool {
	var st unix.Statfs_t
	return path != "" && unix.Statfs(path, &st) == nil && int64(st.Type) == nsfsMagic
}

// IsContainerProcess says whether a process of this host belongs to an engine's
// container. Its cgroup tells: the engine puts the id into the name.
func IsContainerProcess(pid int, containerID string) bool {
	if pid <= 0 || containerID == "" {
		return false
	}
	groups, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	return err == nil && strings.Contains(string(groups), containerID)
}
