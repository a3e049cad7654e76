package bundle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/bounded"
)

// Host is the machine that the runtime runs on.
type Host struct {
	Name, Kernel, Machine, System string
	Figures                       map[string]string // of hostFigures, by path
}

// Disk is a file system.
type Disk struct {
	Path, Use                  string
	Used, Bytes                uint64
	UsedPercent, InodesPercent int
}

// Config is the keys of a configuration file that are on the list, with their values.
type Config struct {
	Path     string
	Settings map[string]string
}

// Machine has the parts of the host.
type Machine struct {
	Root       string   // is put before every path; for tests
	Files      []string // more configuration files, such as crishim's own
	KeepConfig bool
}

// Parts are the parts of a host.
func (m Machine) Parts() []Part {
	return []Part{{Name: "host", Collect: m.host}, {Name: "disks", Collect: m.disks}, {Name: "configuration", Collect: m.config}}
}

// hostFigures are files of numbers and of words of the kernel's own.
var hostFigures = []string{
	"/proc/uptime", "/proc/loadavg", "/proc/pressure/*", "/proc/meminfo", "/proc/cgroups", "/proc/filesystems", "/proc/net/sockstat", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max",
	"/proc/sys/fs/file-nr", "/proc/sys/fs/inotify/*", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/bridge/*", "/proc/sys/net/netfilter/nf_conntrack_count",
	"/proc/sys/net/netfilter/nf_conntrack_max", "/proc/sys/user/max_*", "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cgroup.subtree_control",
	"/sys/fs/cgroup/*.slice/memory.events", "/sys/fs/cgroup/*.slice/memory.current", "/sys/fs/cgroup/*.slice/pids.current",
}

// read reads the regular files of the host that there are.
func (m Machine) read(patterns []string, add func(path string, text []byte)) (failed error) {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join("/", m.Root, pattern))
		failed = errors.Join(failed, err)
		for _, path := range paths {
			text, err := func() ([]byte, error) {
				file, err := bounded.OpenFile(path, os.O_RDONLY)
				if err != nil {
					return nil, err
				}
				defer file.Close()
				return io.ReadAll(io.LimitReader(file, logBytes))
			}()
			switch {
			case err == nil:
				add(strings.TrimPrefix(path, m.Root), text)
			case !errors.Is(err, fs.ErrNotExist):
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

func (m Machine) host(context.Context) (func(*Report), error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	text := func(field [65]byte) string { return unix.ByteSliceToString(field[:]) }
	h := &Host{Name: text(u.Nodename), Kernel: text(u.Release), Machine: text(u.Machine), Figures: map[string]string{}}
	err := m.read(hostFigures, func(path string, text []byte) { h.Figures[path] = strings.TrimSpace(string(text)) })
	err = errors.Join(err, m.read([]string{"/etc/os-release"}, func(_ string, text []byte) {
		for line := range strings.Lines(string(text)) {
			if name, ok := strings.CutPrefix(line, "PRETTY_NAME="); ok {
				h.System = strings.Trim(name, "\"\n")
			}
		}
	}))
	return func(r *Report) { r.Host = h }, err
}

// dataDirs are where runtimes and kubelets keep their data: a full one is behind many faults.
var dataDirs = []string{"/", "/run", "/tmp", "/var", "/var/lib/docker", "/var/lib/containerd", "/var/lib/containers", "/var/lib/kubelet", "/var/lib/rancher", "/var/lib/k0s", "/var/log", "/var/log/pods"}

func (m Machine) disks(context.Context) (func(*Report), error) {
	var all []Disk
	percent := func(all, free uint64) int { return int(100 * (all - min(free, all)) / max(all, 1)) } //nolint:gosec // up to 100
	for _, path := range dataDirs {
		var st unix.Statfs_t
		if unix.Statfs(filepath.Join("/", m.Root, path), &st) == nil { // most are not there
			size := uint64(st.Bsize) //nolint:gosec // of a block
			all = append(all, Disk{path, fmt.Sprintf("file system %#x", st.Type), (st.Blocks - st.Bavail) * size, st.Blocks * size, percent(st.Blocks, st.Bavail), percent(st.Files, st.Ffree)})
		}
	}
	return func(r *Report) { r.Disks = append(r.Disks, all...) }, nil
}

var configFiles = []string{
	"/etc/crictl.yaml", "/etc/crishim/*.yaml", "/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*",
	"/etc/containers/registries.conf", "/etc/containers/storage.conf", "/var/lib/kubelet/config.yaml", "/etc/rancher/*/config.yaml",
	"/var/lib/rancher/*/agent/etc/containerd/config.toml", "/etc/k0s/*.yaml", "/etc/k0s/containerd.toml",
	"/etc/cni/net.d/*.conf", "/etc/cni/net.d/*.conflist", "/etc/cni/net.d/*.json", "/var/lib/rancher/*/agent/etc/cni/net.d/*.conf*",
}

// configKeys are the keys of configuration files whose values are told: versions, switches, endpoints, drivers, directories,
// networks, images of sandboxes and hosts of registries.
var configKeys = words(`version cniVersion apiVersion kind debug disabled_plugins required_plugins imports
	runtime-endpoint image-endpoint timeout pull-image-on-create address hosts containerRuntimeEndpoint imageServiceEndpoint listen
	storage-driver snapshotter driver log-driver cgroupDriver cgroup_manager SystemdCgroup exec-opts default-runtime default_runtime default_runtime_name runtime_type userns-remap live-restore
	data-root exec-root root state runroot graphroot bin_dir bin_dirs conf_dir config_path network_dir plugin_dirs cni-conf-dir cni-bin-dir staticPodPath podLogsDir
	bip mtu iptables ip-forward ipv6 name type bridge isGateway ipMasq subnet portMappings maxPods max_container_log_line_size max-size max-file
	sandbox_image sandbox pause_image podSandboxImage pod-infra-container-image registry-mirrors insecure-registries unqualified-search-registries location`)

func words(text string) map[string]bool {
	set := map[string]bool{}
	for word := range strings.FieldsSeq(text) {
		set[word] = true
	}
	return set
}

func (m Machine) config(context.Context) (func(*Report), error) {
	var all []Config
	var files []File
	var broken error
	err := m.read(append(slices.Clone(configFiles), m.Files...), func(path string, text []byte) {
		if slices.ContainsFunc(all, func(c Config) bool { return c.Path == path }) {
			return // named twice
		}
		settings, err := parse(path, text)
		if err != nil {
			broken = errors.Join(broken, fmt.Errorf("%s is not read: it is not well-formed", path))
		}
		all = append(all, Config{path, settings})
		if m.KeepConfig {
			files = append(files, File{"config" + path, string(text)})
		}
	})
	return func(r *Report) { r.Config, r.Files = append(r.Config, all...), append(r.Files, files...) }, errors.Join(err, broken)
}

// parse returns the settings of a file that are on the list, in JSON, YAML or TOML.
func parse(path string, text []byte) (map[string]string, error) {
	found := map[string]string{}
	if ext := filepath.Ext(path); ext == ".toml" || ext == ".conf" && !strings.Contains(path, "/cni/") || strings.Contains(path, "/crio.conf.d/") {
		parseTOML(string(text), found)
		return found, nil
	}
	var tree any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, err
	}
	collect("", tree, found)
	return found, nil
}

// parseTOML reads the lines of one key and one value each. Values of several lines are none of the list.
func parseTOML(text string, found map[string]string) {
	end := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if end != "" { // within a value of several lines
			if strings.Contains(line, end) {
				end = ""
			}
			continue
		}
		if strings.HasPrefix(line, "[") {
			continue // the name of a table may be anything
		}
		key, value, ok := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		for _, quotes := range []string{`"""`, "'''"} {
			if strings.HasPrefix(value, quotes) && strings.Count(value, quotes) < 2 {
				end = quotes
			}
		}
		var tree any
		if ok && end == "" && yaml.Unmarshal([]byte(value), &tree) == nil {
			key = strings.Trim(strings.TrimSpace(key), `"'`)
			collect(key, tree, found)
		}
	}
}

// collect adds the scalars below keys of the list. Keys above them are not told: they may have any name.
func collect(key string, tree any, found map[string]string) {
	switch tree := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			collect(key, tree[key], found)
		}
	case []any:
		for _, one := range tree {
			collect(key, one, found)
		}
	case nil:
	default:
		if configKeys[key] {
			if value := bare(fmt.Sprint(tree)); found[key] == "" {
				found[key] = value
			} else {
				found[key] += ", " + value
			}
		}
	}
}

// bare returns a value without the credentials that a URL may have: of one with a host only that is left.
func bare(value string) string {
	if u, err := url.Parse(value); err == nil && u.Host != "" {
		return u.Scheme + "://" + u.Host
	}
	if before, after, at := strings.Cut(value, "@"); at && !strings.HasPrefix(after, "sha256:") {
		if strings.Contains(before, "://") || strings.Contains(before, ":") {
			return after[:max(0, strings.IndexAny(after+"/", "/?"))]
		}
	}
	return value
}
