package client

import (
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// SeesHost reports whether this process sees the files of the runtime's machine. In a container it does not, unless the
// runtime is in the same container. SeesHost compares the root directory of this process with the root directory of the
// process at the runtime's socket. If either directory is unknown, it returns true.
func (c *Conn) SeesHost() bool {
	endpoint := c.RuntimeEndpoint
	if c.Embedded {
		endpoint = c.Engine.Host
	}
	path, local := strings.CutPrefix(endpoint, "unix://")
	if !local {
		return c.Remote() == ""
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return true
	}
	defer conn.Close()
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return true
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return true
	}
	if peer.Pid == 0 { // the process is in an outer PID namespace
		return false
	}
	ours, theirs := rootOf("self"), rootOf(fmt.Sprint(peer.Pid))
	return ours == "" || theirs == "" || ours == theirs
}

// rootOf returns the device and directory of a process's root, or "" if unknown.
func rootOf(pid string) (root string) {
	text, err := os.ReadFile("/proc/" + pid + "/mountinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && fields[4] == "/" {
			root = fields[2] + " " + fields[3]
		}
	}
	return root
}
