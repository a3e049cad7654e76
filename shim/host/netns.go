package host

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/shim/host/proctree"
)

// nsfsMagic is the file system of namespace files.
const nsfsMagic = 0x6e736673

// NetNS returns a path of a container's network namespace on this host, "" when
// the engine runs on another one or the container has ended. It is the file that the
// engine keeps, or else a descriptor of this process, good until done is called: a
// path through the container's process may lead to another's namespace when the
// process id is used again.
func NetNS(containerID, engineFile string, pid int) (path string, done func()) {
	if isNamespace(engineFile) {
		return engineFile, func() {}
	}
	found, err := proctree.Find(pid)
	if err != nil || !found.InContainer(containerID) {
		return "", func() {}
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return "", func() {}
	}
	if !found.Alive() { // what was opened may be somebody else's
		_ = f.Close()
		return "", func() {}
	}
	// Not /proc/self: the path is for plugins, and for what they ask to do their work.
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), func() { _ = f.Close() }
}

func isNamespace(path string) bool {
	var st unix.Statfs_t
	return path != "" && unix.Statfs(path, &st) == nil && int64(st.Type) == nsfsMagic
}
