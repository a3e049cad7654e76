package bundle

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/program"
)

// Host has the parts of the machine that the runtime runs on.
type Host struct {
	Root  string   // is put before every path; for tests
	Files []string // more configuration files, such as crishim's own
	// Journal is the program that shows units' logs; journalctl where it is empty.
	Journal string
}

// Parts are the parts of a host.
func (h Host) Parts() []Part {
	return []Part{
		{Name: "kernel", Collect: h.kernel},
		{Name: "cgroup", Collect: h.cgroup},
		{Name: "mounts", Collect: h.mounts},
		{Name: "network", Collect: h.network},
		{Name: "configuration", Collect: h.configuration},
		{Name: "CNI", Collect: h.cni},
		{Name: "journal", Limit: 2 * defaultLimit, Collect: h.journal},
	}
}

// read adds files of the host under their own paths. It is no error that some are not there.
func (h Host) read(ctx context.Context, add func(string, []byte), patterns ...string) error {
	var failed error
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join("/", h.Root, pattern))
		if err != nil {
			return err
		}
		for _, path := range paths {
			if ctx.Err() != nil {
				return errors.Join(failed, ctx.Err())
			}
			text, err := readPlain(path)
			switch {
			case err == nil:
				add("host"+strings.TrimPrefix(path, h.Root), text)
			case !errors.Is(err, fs.ErrNotExist):
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

// values adds files of one value each as one file of lines.
func (h Host) values(ctx context.Context, f *Files, name string, patterns ...string) error {
	var lines bytes.Buffer
	err := h.read(ctx, func(path string, text []byte) {
		for line := range strings.Lines(string(text)) {
			fmt.Fprintf(&lines, "%s: %s\n", strings.TrimPrefix(path, "host"), strings.TrimSpace(line))
		}
	}, patterns...)
	f.Log(name, lines.Bytes())
	return err
}

// readPlain reads a regular file, which those of /proc are as well.
func readPlain(path string) ([]byte, error) {
	file, err := bounded.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, textBytes))
}

func (h Host) kernel(ctx context.Context, f *Files) error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	text := func(field [65]byte) string { return unix.ByteSliceToString(field[:]) }
	document, err := json.Marshal(map[string]string{
		"system": text(u.Sysname), "host": text(u.Nodename), "release": text(u.Release), "version": text(u.Version), "machine": text(u.Machine),
	})
	if err != nil {
		return err
	}
	f.Public(text(u.Nodename))
	log := make([]byte, textBytes)
	if n, err := unix.Klogctl(unix.SYSLOG_ACTION_READ_ALL, log); err != nil {
		f.Note("the kernel log: %v", err) // only root may read it on many hosts
	} else {
		f.Log("host/dmesg.txt", log[:n])
	}
	return errors.Join(f.Document("host/uname.json", document, true), h.read(ctx, f.Log, "/etc/os-release", "/proc/meminfo", "/proc/vmstat", "/proc/modules"), h.values(ctx, f, "host/kernel.txt",
		"/proc/version", "/proc/cmdline", "/proc/uptime", "/proc/loadavg", "/proc/pressure/*",
		"/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max", "/proc/sys/fs/file-nr", "/proc/sys/fs/inotify/*",
		"/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/bridge/*", "/proc/sys/net/netfilter/nf_conntrack_count", "/proc/sys/net/netfilter/nf_conntrack_max", "/proc/sys/user/max_*"))
}

func (h Host) cgroup(ctx context.Context, f *Files) error {
	return h.values(ctx, f, "host/cgroup.txt", "/proc/cgroups", "/proc/self/cgroup", "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cgroup.subtree_control", "/sys/fs/cgroup/cgroup.stat",
		"/sys/fs/cgroup/*.slice/memory.events", "/sys/fs/cgroup/*.slice/memory.current", "/sys/fs/cgroup/*.slice/memory.max", "/sys/fs/cgroup/*.slice/pids.current", "/sys/fs/cgroup/*.slice/pids.max")
}

// dataDirs are where runtimes and kubelets keep their data: a full one is behind many faults.
var dataDirs = []string{
	"/", "/run", "/tmp", "/var", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/rancher", "/var/lib/k0s", "/var/log", "/var/log/pods",
}

func (h Host) mounts(ctx context.Context, f *Files) error {
	err := h.read(ctx, f.Log, "/proc/self/mountinfo", "/proc/filesystems")
	type space struct {
		Path                             string
		Bytes, Free, Inodes, InodesFree  uint64
		BytesUsedPercent, InodesUsedPerc int
	}
	var all []space
	percent := func(all, free uint64) int {
		if all == 0 {
			return 0
		}
		return int(100 * (all - min(free, all)) / all)
	}
	for _, path := range dataDirs {
		if ctx.Err() != nil {
			break
		}
		var st unix.Statfs_t
		if unix.Statfs(filepath.Join("/", h.Root, path), &st) != nil {
			continue // most are not there
		}
		all = append(all, space{
			path, st.Blocks * uint64(st.Bsize), st.Bavail * uint64(st.Bsize), st.Files, st.Ffree, percent(st.Blocks, st.Bavail), percent(st.Files, st.Ffree),
		})
	}
	text, failed := json.Marshal(all)
	return errors.Join(err, failed, f.Document("host/space.json", text, true))
}

func (h Host) network(ctx context.Context, f *Files) error {
	interfaces, err := net.Interfaces()
	var text bytes.Buffer
	for _, i := range interfaces {
		addresses, failed := i.Addrs()
		err = errors.Join(err, failed)
		fmt.Fprintf(&text, "%d: %s mtu %d %s", i.Index, i.Name, i.MTU, i.Flags)
		for _, a := range addresses {
			fmt.Fprintf(&text, " %s", a)
		}
		text.WriteByte('\n')
	}
	f.Log("host/interfaces.txt", text.Bytes())
	return errors.Join(err, h.read(ctx, f.Log, "/proc/net/route", "/proc/net/ipv6_route", "/proc/net/sockstat", "/proc/net/dev", "/etc/resolv.conf", "/etc/hosts"))
}

func (h Host) configuration(ctx context.Context, f *Files) error {
	patterns := []string{
		"/etc/crictl.yaml", "/etc/crishim/*.yaml", "/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*",
		"/etc/containers/registries.conf", "/etc/containers/storage.conf", "/etc/containers/policy.json", "/var/lib/kubelet/config.yaml",
		"/etc/rancher/*/config.yaml", "/etc/rancher/*/registries.yaml", "/var/lib/rancher/*/agent/etc/containerd/config.toml", "/etc/k0s/*.yaml", "/etc/k0s/containerd.toml",
	}
	for _, path := range h.Files {
		if path != "" && !slices.Contains(patterns, path) {
			patterns = append(patterns, path)
		}
	}
	return h.read(ctx, f.Settings, patterns...)
}

func (h Host) cni(ctx context.Context, f *Files) error {
	var patterns []string
	for _, dir := range []string{"/etc/cni/net.d", "/var/lib/rancher/*/agent/etc/cni/net.d", "/var/snap/microk8s/current/args/cni-network"} {
		for _, ending := range []string{"conf", "conflist", "json"} {
			patterns = append(patterns, dir+"/*."+ending)
		}
	}
	err := h.read(ctx, f.Settings, patterns...)
	var names bytes.Buffer
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"} {
		entries, failed := os.ReadDir(filepath.Join("/", h.Root, dir))
		if failed != nil {
			continue // there is one of them at most
		}
		for _, e := range entries {
			fmt.Fprintln(&names, dir+"/"+e.Name())
		}
	}
	f.Log("host/cni-plugins.txt", names.Bytes())
	return err
}

// journalUnits are those that runtimes and kubelets run as.
var journalUnits = []string{"docker", "containerd", "crio", "cri-docker", "crishim", "crishim-sync@*", "kubelet", "k3s", "k3s-agent", "rke2-server", "rke2-agent", "k0scontroller", "k0sworker"}

const journalLines = 2000

func (h Host) journal(ctx context.Context, f *Files) error {
	name := h.Journal
	if name == "" {
		name = "journalctl"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return errors.New("there is no journalctl here")
	}
	args := []string{"--no-pager", "--quiet", "--output=short-iso-precise", "--lines=" + fmt.Sprint(journalLines)}
	for _, unit := range journalUnits {
		args = append(args, "--unit="+unit)
	}
	cmd := program.Command(ctx, path, args...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = endGrace
	out, stderr := &tail{limit: textBytes}, &tail{limit: 4 << 10}
	cmd.Stdout, cmd.Stderr = out, stderr
	err = cmd.Run()
	if len(out.text) > 0 {
		f.Log("host/journal.txt", out.text)
	}
	if message := strings.TrimSpace(string(stderr.text)); message != "" {
		if err == nil {
			f.Note("journalctl: %s", message)
			return nil
		}
		err = fmt.Errorf("journalctl: %s: %w", message, err)
	}
	if err == nil && len(out.text) == 0 {
		f.Note("the journal has nothing of these units: %s", strings.Join(journalUnits, ", "))
	}
	return err
}

// tail keeps the end of what is written.
type tail struct {
	limit int
	text  []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	if extra := len(t.text) - 2*t.limit; extra > 0 {
		t.text = slices.Clone(t.text[extra+t.limit:])
	}
	return len(b), nil
}
