package criconfig

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"
)

// Host holds the facts and settings of the host that a pod's configuration depends on.
type Host struct {
	Name        string
	IPs         []string
	CPUs        int
	Memory      int64
	Storage     int64   // size of the root file system
	HugePages   []int64 // huge page sizes of the kernel, in bytes
	CgroupRoot  string  // where cgroups are mounted
	CgroupV2    bool
	SwapControl bool  // the kernel can limit swap
	Swap        int64 // total size of swap
	DNS         dnsConfig
	HostsFile   string // text of the host's /etc/hosts

	// LimitedSwap and SingleProcessOOMKill are kubelet settings that need cgroup v2. ReadHost does not set them.
	LimitedSwap, SingleProcessOOMKill bool
}

// ReadHost reads the facts of this host. An unreadable host name is an error. Other unreadable facts stay empty.
func ReadHost() (Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return Host{}, fmt.Errorf("host name: %w", err)
	}
	h := Host{Name: strings.ToLower(name), CPUs: runtime.NumCPU(), IPs: hostIPs()}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil {
			h.Memory = int64(*memory.MemTotalBytes)
			h.Swap = int64(ptr.Deref(memory.SwapTotalBytes, 0))
		}
	}
	h.CgroupRoot = "/sys/fs/cgroup"
	h.CgroupV2, h.SwapControl = swapControl(h.CgroupRoot, "/proc/self/cgroup")
	h.HugePages = hugePages("/sys/kernel/mm/hugepages")
	var root unix.Statfs_t
	if err := unix.Statfs("/", &root); err == nil {
		h.Storage = int64(root.Blocks) * int64(root.Bsize)
	}
	h.DNS = hostDNS()
	if text, err := os.ReadFile("/etc/hosts"); err == nil {
		h.HostsFile = string(text)
	}
	return h, nil
}

func hugePages(dir string) []int64 {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var out []int64
	for _, entry := range entries {
		var kib int64
		if _, err := fmt.Sscanf(entry.Name(), "hugepages-%dkB", &kib); err == nil {
			out = append(out, kib<<10)
		}
	}
	slices.Sort(out)
	return out
}

// hostDNS returns the host's resolver configuration. If /etc/resolv.conf has only loopback servers, such as the stub of
// systemd-resolved, hostDNS returns the upstream servers of systemd-resolved.
func hostDNS() dnsConfig {
	var dns dnsConfig
	for i, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if found := parseResolv(string(text)); i == 0 || !found.onlyLoopback() {
			dns = found
		}
		if !dns.onlyLoopback() {
			break
		}
	}
	return dns
}

// hostIPs returns the source addresses of packets to other hosts: IPv4 first, then IPv6. Without a route to other
// hosts, it returns 127.0.0.1.
func hostIPs() []string {
	var out []string
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", target) // sends nothing, only reads the routing table
		if err != nil {
			continue
		}
		if addr, ok := conn.LocalAddr().(*net.UDPAddr); ok && !addr.IP.IsLoopback() {
			out = append(out, addr.IP.String())
		}
		_ = conn.Close()
	}
	if len(out) == 0 {
		out = []string{"127.0.0.1"}
	}
	return out
}
