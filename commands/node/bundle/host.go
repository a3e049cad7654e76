package bundle

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/crishim/crishim/internal/bounded"
)

// Machine is the host. Its parts read files of the host and the free space of its file systems.
type Machine struct {
	Root       string   // prefix of every path, for tests
	Files      []string // additional configuration files, such as crishim's own
	KeepConfig bool
}

// Parts returns the parts that collect the state and the configuration files of the host.
func (m Machine) Parts() []Part {
	return []Part{{Name: "host", Collect: m.host}, {Name: "configuration", Collect: m.config}}
}

// hostFigures are files that are copied whole. They contain only numbers and texts of the kernel and the distribution,
// and the host name.
var hostFigures = []string{
	"/proc/sys/kernel/hostname", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/arch", "/etc/os-release", "/proc/uptime", "/proc/loadavg",
	"/proc/pressure/*", "/proc/meminfo", "/proc/cgroups", "/proc/filesystems", "/proc/net/sockstat", "/proc/sys/kernel/pid_max", "/proc/sys/kernel/threads-max",
	"/proc/sys/fs/file-nr", "/proc/sys/fs/inotify/*", "/proc/sys/net/ipv4/ip_forward", "/proc/sys/net/bridge/*", "/proc/sys/net/netfilter/nf_conntrack_count",
	"/proc/sys/net/netfilter/nf_conntrack_max", "/proc/sys/user/max_*", "/sys/fs/cgroup/cgroup.controllers", "/sys/fs/cgroup/cgroup.subtree_control",
	"/sys/fs/cgroup/*.slice/memory.events", "/sys/fs/cgroup/*.slice/memory.current", "/sys/fs/cgroup/*.slice/pids.current",
}

// read reads the files of the host that match the patterns, and skips missing files. After any other failure, such as a
// directory or a file that is larger than logBytes, it reads the remaining files and then returns the error.
func (m Machine) read(patterns []string, add func(path string, text []byte)) (failed error) {
	for _, pattern := range patterns {
		paths, err := filepath.Glob(filepath.Join("/", m.Root, pattern))
		failed = errors.Join(failed, err)
		for _, path := range paths {
			if text, err := bounded.ReadRegular(path, logBytes); err == nil {
				add(strings.TrimPrefix(path, m.Root), text)
			} else if !errors.Is(err, fs.ErrNotExist) {
				failed = errors.Join(failed, err)
			}
		}
	}
	return failed
}

func (m Machine) host(context.Context) (func(*Report), error) {
	figures := map[string]string{}
	err := m.read(hostFigures, func(path string, text []byte) { figures[path] = strings.TrimSpace(string(text)) })
	for _, path := range dataDirs {
		var st unix.Statfs_t
		if unix.Statfs(filepath.Join("/", m.Root, path), &st) == nil { // a host has only a few of dataDirs
			figures["df "+path] = fmt.Sprintf("file system %#x, %d of %d blocks of %d bytes free, %d of %d inodes", st.Type, st.Bavail, st.Blocks, st.Bsize, st.Ffree, st.Files)
		}
	}
	return func(r *Report) { r.Host = figures }, err
}

// dataDirs are the data directories of runtimes and kubelets. Their free space is collected, because a full file system
// causes many faults.
var dataDirs = strings.Fields("/ /run /tmp /var /var/lib/docker /var/lib/containerd /var/lib/containers /var/lib/kubelet /var/lib/rancher /var/lib/k0s /var/log /var/log/pods")

var configFiles = []string{
	"/etc/crictl.yaml", "/etc/crishim/*.yaml", "/etc/docker/daemon.json", "/etc/containerd/config.toml", "/etc/containerd/conf.d/*.toml", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*",
	"/etc/containers/registries.conf", "/etc/containers/storage.conf", "/var/lib/kubelet/config.yaml", "/etc/rancher/*/config.yaml",
	"/var/lib/rancher/*/agent/etc/containerd/config.toml", "/etc/k0s/*.yaml", "/etc/k0s/containerd.toml",
	"/etc/cni/net.d/*.conf", "/etc/cni/net.d/*.conflist", "/etc/cni/net.d/*.json", "/var/lib/rancher/*/agent/etc/cni/net.d/*.conf*",
}

// configKeys are the keys of configuration files whose values are in the bundle: versions, switches, endpoints, drivers, directories,
// networks, images of sandboxes and hosts of registries.
var configKeys = strings.Fields(`version cniVersion apiVersion kind debug disabled_plugins required_plugins imports
	runtime-endpoint image-endpoint timeout pull-image-on-create address hosts containerRuntimeEndpoint imageServiceEndpoint listen
	storage-driver snapshotter driver log-driver cgroupDriver cgroup_manager SystemdCgroup exec-opts default-runtime default_runtime default_runtime_name runtime_type userns-remap live-restore
	data-root exec-root root state runroot graphroot bin_dir bin_dirs conf_dir config_path network_dir plugin_dirs cni-conf-dir cni-bin-dir staticPodPath podLogsDir
	bip mtu iptables ip-forward ipv6 name type bridge isGateway ipMasq subnet portMappings maxPods max_container_log_line_size max-size max-file
	sandbox_image sandbox pause_image podSandboxImage pod-infra-container-image registry-mirrors insecure-registries unqualified-search-registries location`)

func (m Machine) config(context.Context) (func(*Report), error) {
	all, broken := map[string]map[string]string{}, error(nil)
	var files []File
	err := m.read(slices.Concat(configFiles, m.Files), func(path string, text []byte) {
		settings, err := parse(path, text)
		if err != nil {
			broken = errors.Join(broken, fmt.Errorf("%s is not read: it is not well-formed", path))
		}
		if _, twice := all[path]; m.KeepConfig && !twice {
			files = append(files, File{"config" + path, string(text)})
		}
		all[path] = settings
	})
	return func(r *Report) { r.Config, r.Files = all, append(r.Files, files...) }, errors.Join(err, broken)
}

// parse returns the values of configKeys in a JSON, YAML or TOML file.
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

// parseTOML reads keys with a value on one line, or with an array of several lines. It ignores the names of tables,
// because users may choose them. It omits strings of several lines, and arrays in arrays: configKeys have none.
func parseTOML(text string, found map[string]string) {
	quotes := "" // closing quotes of the current value of several lines
	array := ""  // lines of the current array
	for line := range strings.Lines(text) {
		for _, mark := range []string{`"""`, "'''"} {
			if quotes == "" && strings.Count(line, mark) == 1 {
				quotes, line = mark, ""
			} else if quotes == mark && strings.Contains(line, mark) {
				quotes, line = "", ""
			}
		}
		line = array + line
		array = ""
		var tree any
		key, value, ok := strings.Cut(line, "=")
		key = strings.Trim(key, " \t\"'")
		switch {
		case !ok || quotes != "" || strings.HasPrefix(key, "["):
		case strings.HasPrefix(strings.TrimSpace(value), "[") && !strings.Contains(value, "]"):
			array = line
		case yaml.Unmarshal([]byte(value), &tree) == nil:
			collect(key, tree, found)
		}
	}
}

// collect adds the scalar values of configKeys in tree to found. It omits their parent keys, because users may choose
// the names of these keys.
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
		if slices.Contains(configKeys, key) {
			found[key] = strings.TrimPrefix(found[key]+", "+Bare(fmt.Sprint(tree)), ", ")
		}
	}
}

// Bare returns a value without credentials. It reduces a URL with a host to the scheme and the host. It omits a value if
// the last @ is not surely the end of the credentials, because an @ may also be in a path or a query.
func Bare(value string) string {
	at := strings.LastIndexByte(value, '@')
	before, host := value[:max(at, 0)], value[at+1:]
	host = host[:strings.IndexAny(host+"/", "/?#")]
	u, err := url.Parse(value)
	hasHost := err == nil && u.Host != ""
	isDigest := strings.HasPrefix(host, "sha256:") && !strings.Contains(before, "@")
	switch {
	case hasHost && (at < 0 || host == u.Host):
		return u.Scheme + "://" + u.Host
	case !hasHost && (isDigest || !strings.Contains(before, ":")):
		return value
	case strings.ContainsAny(before, "/?#"):
		return "(omitted)"
	}
	return host
}
