package kuberuntime

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// ReadHost gathers what pods may ask about this host. What cannot be read stays empty.
func ReadHost() (criconfig.Host, error) {
	name, err := os.Hostname()
	if err != nil {
		return criconfig.Host{}, fmt.Errorf("host name: %w", err)
	}
	h := criconfig.Host{Name: strings.ToLower(name), CPUs: runtime.NumCPU(), IPs: hostIPs()}
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if memory, err := proc.Meminfo(); err == nil && memory.MemTotalBytes != nil {
			h.Memory = int64(*memory.MemTotalBytes)
		}
	}
	_, v1 := os.Stat("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes")
	_, v2 := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	h.SwapControl = v1 == nil || v2 == nil
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

// hugePages lists the sizes of huge pages that the kernel has, the smallest first.
func hugePages(dir string) []int64 {
	names, err := listDir(dir)
	if err != nil {
		return nil
	}
	var out []int64
	for _, name := range names {
		var kib int64
		if _, err := fmt.Sscanf(name, "hugepages-%dkB", &kib); err == nil {
			out = append(out, kib<<10)
		}
	}
	slices.Sort(out)
	return out
}

// hostDNS is the host's resolver; behind systemd's stub it is what the stub asks.
func hostDNS() criconfig.DNS {
	var dns criconfig.DNS
	for i, path := range []string{"/etc/resolv.conf", "/run/systemd/resolve/resolv.conf"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if found := criconfig.ParseResolv(string(text)); i == 0 || !found.OnlyLoopback() {
			dns = found
		}
		if !dns.OnlyLoopback() {
			break
		}
	}
	return dns
}

// hostIPs has the address that packets to the outside leave from, then one of the other
// family if there is one.
func hostIPs() []string {
	var out []string
	for _, target := range []string{"192.0.2.1:9", "[2001:db8::1]:9"} {
		conn, err := net.Dial("udp", target) // sends nothing, asks the routing table
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

// DefaultDirs are the kubelet's log folders and /var/lib/crishim for root, and folders in
// the user's home for others. CRISHIM_ROOT and CRISHIM_LOGS override them.
func DefaultDirs(lookupEnv func(string) (string, bool)) pod.Dirs {
	d := pod.Dirs{Root: "/var/lib/crishim", Logs: "/var/log/pods", LegacyLogs: "/var/log/containers"}
	if os.Geteuid() != 0 {
		data, ok := lookupEnv("XDG_DATA_HOME")
		if !ok || data == "" {
			home, _ := lookupEnv("HOME")
			data = filepath.Join(home, ".local", "share")
		}
		root := filepath.Join(data, "crishim")
		d = pod.Dirs{Root: root, Logs: filepath.Join(root, "logs")}
	}
	if root, ok := lookupEnv("CRISHIM_ROOT"); ok && root != "" {
		d = pod.Dirs{Root: root, Logs: filepath.Join(root, "logs")}
	}
	if logs, ok := lookupEnv("CRISHIM_LOGS"); ok && logs != "" {
		d.Logs, d.LegacyLogs = logs, ""
	}
	return d
}
