package diagnose

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/hostproc"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Host is the machine of the runtime.
type Host struct {
	// Root is a prefix of every path, for tests.
	Root string
	// Hidden means that the files of the machine are not visible, as in a container.
	Hidden bool
}

func (h Host) path(p string) string { return filepath.Join(h.Root, p) }

// exists reports whether a path exists. It returns true for a path that this user may not look up.
func (h Host) exists(path string) bool {
	_, err := os.Stat(h.path(path))
	return h.Hidden || !errors.Is(err, fs.ErrNotExist)
}

// memoryUse has the memory counters of a container's cgroup.
type memoryUse struct {
	Peak  uint64 // bytes
	Kills uint64 // OOM kills in the cgroup since its creation
}

// group returns the cgroup directory of a container's process, and the cgroup version. In version 1, each controller has
// its own directories. group returns "" if the process has no such cgroup or is not a process of the container.
func (h Host) group(pid int, id, controller string) (dir string, version int) {
	text, err := bounded.ReadFile(h.path(fmt.Sprintf("/proc/%d/cgroup", pid)), 1<<20)
	if pid <= 0 || err != nil || h.Hidden {
		return "", 0
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 || hostproc.ContainerOf(parts[2]) != id { // the pid may have been reused
			continue
		}
		switch {
		case strings.Contains(","+parts[1]+",", ","+controller+","):
			return filepath.Join("/sys/fs/cgroup", controller, parts[2]), 1
		case parts[1] == "" && h.exists("/sys/fs/cgroup/cgroup.controllers"):
			return filepath.Join("/sys/fs/cgroup", parts[2]), 2
		}
	}
	return "", 0
}

// memory reads the memory counters of a container's process, or returns nil without them.
func (h Host) memory(pid int, id string) *memoryUse {
	switch dir, version := h.group(pid, id, "memory"); version {
	case 1:
		return &memoryUse{Peak: h.counter(dir, "memory.max_usage_in_bytes", ""), Kills: h.counter(dir, "memory.oom_control", "oom_kill")}
	case 2:
		return &memoryUse{Peak: h.counter(dir, "memory.peak", ""), Kills: h.counter(dir, "memory.events", "oom_kill")}
	}
	return nil
}

// paused reports whether the cgroup of a container's process is frozen. CRI has no state for that.
func (h Host) paused(pid int, id string) bool {
	dir, version := h.group(pid, id, "freezer")
	if version == 1 {
		text, err := bounded.ReadFile(h.path(filepath.Join(dir, "freezer.state")), 1<<10)
		return err == nil && strings.TrimSpace(string(text)) == "FROZEN"
	}
	return version == 2 && h.counter(dir, "cgroup.events", "frozen") == 1
}

// counter reads a number from a file, which contains it alone or after a key. It returns 0 if the number is missing.
func (h Host) counter(dir, file, key string) uint64 {
	text, err := bounded.ReadFile(h.path(filepath.Join(dir, file)), 1<<16)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || key != "" && fields[0] != key {
			continue
		}
		n, _ := strconv.ParseUint(fields[len(fields)-1], 10, 64)
		return n
	}
	return 0
}

// Filesystem is a filesystem that pods depend on.
type Filesystem struct {
	Path          string
	Space, Inodes float64 // the free share, 0 to 1
}

// filesystems measures each filesystem of the paths once. The Path of a result is the first path on the filesystem.
// Missing paths are omitted.
func (h Host) filesystems(paths ...string) (list []Filesystem) {
	seen := map[uint64]bool{}
	for _, path := range paths {
		var file unix.Stat_t
		if h.Hidden || path == "" || unix.Stat(h.path(path), &file) != nil || seen[file.Dev] {
			continue
		}
		if f, err := Measure(h.path(path)); err == nil {
			seen[file.Dev], f.Path = true, path
			list = append(list, f)
		}
	}
	return list
}

// Measure measures the filesystem of a path.
func Measure(path string) (Filesystem, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return Filesystem{}, &fs.PathError{Op: "statfs", Path: path, Err: err}
	}
	return Filesystem{path, share(st.Bavail, st.Blocks), share(st.Ffree, st.Files)}, nil
}

// share returns part/whole, and 1 for filesystems that do not count blocks or inodes.
func share(part, whole uint64) float64 {
	if whole == 0 {
		return 1
	}
	return float64(part) / float64(whole)
}

func (c *Collector) node(ctx context.Context) (n Node) {
	if r, err := c.conn.Runtime.Status(ctx, &runtimeapi.StatusRequest{}); err == nil {
		n.Conditions = r.GetStatus().GetConditions()
	} else {
		c.fail(err)
	}
	var paths []string
	if r, err := c.conn.Image.ImageFsInfo(ctx, &runtimeapi.ImageFsInfoRequest{}); err == nil {
		for _, one := range r.GetImageFilesystems() {
			paths = append(paths, one.GetFsId().GetMountpoint())
		}
	}
	n.Filesystems = c.o.Host.filesystems(append(paths, c.o.Dirs.Root, c.o.Dirs.Logs)...)
	proc, err := procfs.NewFS(c.o.Host.path("/proc"))
	if err == nil {
		var stat procfs.Stat
		if stat, err = proc.Stat(); err == nil {
			n.Booted = time.Unix(int64(stat.BootTime), 0)
		}
		n.EngineStarted = engineStarted(proc, n.Booted, c.conn)
	}
	if err != nil {
		n.Unread = append(n.Unread, "/proc: "+err.Error())
	}
	if n.Kills, err = c.o.Host.kernelKills(n.Booted); err != nil {
		n.Unread = append(n.Unread, "the kernel log: "+err.Error())
	}
	n.Leases, n.Invalid = c.o.Host.leases(), kuberuntime.InvalidManifests(c.o.Dirs)
	return n
}

// engineStarted returns the start time of the process behind the endpoint, or of the engine behind the embedded shim. The
// zero time means unknown, for example because systemd holds the socket.
func engineStarted(proc procfs.FS, booted time.Time, conn *client.Conn) (none time.Time) {
	endpoint := conn.RuntimeEndpoint
	if conn.Embedded {
		endpoint = conn.Engine.Host
	}
	path, ok := strings.CutPrefix(endpoint, "unix://")
	if !ok {
		return none
	}
	c, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return none
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return none
	}
	var peer *unix.Ucred
	if raw.Control(func(fd uintptr) { peer, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }) != nil || err != nil {
		return none
	}
	process, err := proc.Proc(int(peer.Pid))
	if err != nil {
		return none
	}
	stat, err := process.Stat()
	if err != nil || stat.PID == 1 {
		return none
	}
	const ticks = 100 // USER_HZ, clock ticks per second
	return booted.Add(time.Duration(stat.Starttime) * time.Second / ticks)
}

// leases counts the addresses in use by CNI's host-local plugin, by network.
func (h Host) leases() map[string]int {
	files, _ := filepath.Glob(h.path("/var/lib/cni/networks/*/*"))
	out := map[string]int{}
	for _, file := range files {
		if !h.Hidden && net.ParseIP(filepath.Base(file)) != nil {
			out[filepath.Base(filepath.Dir(file))]++
		}
	}
	return out
}

// hostPort is a port that a container listens on.
type hostPort struct {
	Number   int32
	Protocol string // tcp or udp
}

func portOf(p v1.ContainerPort, number int32) hostPort {
	return hostPort{number, strings.ToLower(cmp.Or(string(p.Protocol), "tcp"))}
}

// portHolder is a process that listens on a port.
type portHolder struct {
	Process   string
	Pid       int
	Pod       string // namespace/name, if the process belongs to a pod
	Container string // its name in the manifest
}

func (h portHolder) String() string {
	if h.Pid == 0 {
		return "another process"
	}
	text := fmt.Sprintf("process %d (%s)", h.Pid, h.Process)
	if h.Pod != "" {
		text += " of pod " + h.Pod
	}
	return text
}

// ports finds the processes that listen on the ports of containers that do not run. A process listens on the host, or in
// the pod's network, for example in another container of the pod.
func (c *Collector) ports(f *Facts) {
	var networks map[uint64][]hostproc.Process
	for _, p := range f.Pods {
		onHost, inside := wantedPorts(p)
		if len(onHost)+len(inside) == 0 || c.o.Host.Hidden {
			continue
		}
		if networks == nil {
			all, err := hostproc.All()
			c.fail(err)
			networks, _ = hostproc.Networks(all)
		}
		host, _ := hostproc.HostNamespace("net")
		p.Ports = holders(f, networks, host, onHost)
		for network, members := range networks {
			if network != host && slices.ContainsFunc(members, func(m hostproc.Process) bool { return p.status(m.Group.ID()) != nil }) {
				p.Inside = holders(f, networks, network, inside)
			}
		}
	}
}

// holders finds the processes of a network that listen on ports.
func holders(f *Facts, networks map[uint64][]hostproc.Process, network uint64, ports []hostPort) map[hostPort]portHolder {
	found := map[hostPort]portHolder{}
	for _, port := range ports {
		members := map[uint64][]hostproc.Process{network: networks[network]}
		listeners, _ := hostproc.Listeners(members, uint16(port.Number), port.Protocol) //nolint:gosec // a manifest with another is refused
		for _, l := range listeners {
			holder := portHolder{} // only root can see the sockets of other users
			for _, process := range l.Holders {
				holder = f.holder(process)
			}
			found[port] = holder
		}
	}
	return found
}

// holder describes a process. The process belongs to a pod if it is in the cgroup of a container, or is docker-proxy for
// the pod's address.
func (f *Facts) holder(process hostproc.Process) portHolder {
	h := portHolder{Process: process.Command, Pid: process.PID}
	address := ""
	if process.Command == hostproc.DockerProxy {
		address = process.Argument("-container-ip")
	}
	for _, p := range f.Pods {
		s := p.status(process.Group.ID())
		if s != nil {
			h.Container = s.Name
		}
		if s != nil || address != "" && slices.Contains(p.Status.IPs, address) {
			h.Pod = p.Pod.Namespace + "/" + p.Pod.Name
		}
	}
	return h
}

// status returns the container with an id, or nil if the pod does not have it.
func (p *Pod) status(id string) *pod.ContainerStatus {
	for _, c := range p.Status.Containers {
		if c.ID == id {
			return c
		}
	}
	return nil
}
