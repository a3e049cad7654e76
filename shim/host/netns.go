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
