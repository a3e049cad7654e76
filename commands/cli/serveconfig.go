package cli

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/node"
	urfave "github.com/urfave/cli/v2"
	"go.yaml.in/yaml/v3"
)

// Names of flags that are used in several places.
const (
	FlagServeConfig   = "config-file"
	FlagShimConfig    = "shim-config"
	FlagNetworkPlugin = "network-plugin"
)

// serveFile is the file with serve's settings. Its keys are the names of the flags, and its fields point to the
// variables of the flags.
type serveFile struct {
	Listen               *string       `yaml:"listen"`
	RuntimeEndpoint      *string       `yaml:"container-runtime-endpoint"`
	DockerEndpoint       *string       `yaml:"docker-endpoint"`
	PauseImage           *string       `yaml:"pod-infra-container-image"`
	StreamAddress        *string       `yaml:"streaming-bind-addr"`
	StreamCertFile       *string       `yaml:"streaming-tls-cert"`
	StreamKeyFile        *string       `yaml:"streaming-tls-key"`
	StreamIdleTimeout    *yamlDuration `yaml:"streaming-connection-idle-timeout"`
	LinkLogs             *bool         `yaml:"link-logs"`
	LogLevel             *string       `yaml:"log-level"`
	LogFormat            *string       `yaml:"log-format"`
	CgroupDriver         *string       `yaml:"cgroup-driver"`
	RuntimeCgroups       *string       `yaml:"runtime-cgroups"`
	RequestTimeout       *yamlDuration `yaml:"runtime-request-timeout"`
	PullProgressDeadline *yamlDuration `yaml:"image-pull-progress-deadline"`
	MetricsAddress       *string       `yaml:"metrics-addr"`
	ProfileSocket        *string       `yaml:"profile-socket"`
	NetworkPlugin        *string       `yaml:"network-plugin"`
	CNIConfDir           *string       `yaml:"cni-conf-dir"`
	CNIBinDir            *yamlList     `yaml:"cni-bin-dir"`
	CNICacheDir          *string       `yaml:"cni-cache-dir"`
	PodCIDR              *yamlList     `yaml:"pod-cidr"`
	MTU                  *int          `yaml:"network-plugin-mtu"`
	Hairpin              *string       `yaml:"hairpin-mode"`
	NonMasqueradeCIDR    *yamlList     `yaml:"non-masquerade-cidr"`
}

// yamlDuration is a duration: a number of seconds or a string such as 5s.
type yamlDuration time.Duration

// UnmarshalYAML reads a duration.
func (d *yamlDuration) UnmarshalYAML(n *yaml.Node) error {
	value, err := parseDuration(n.Value)
	if err == nil && value < 0 {
		err = errors.New("must not be negative")
	}
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*d = yamlDuration(value)
	return nil
}

// yamlList is a list of strings, or a comma-separated string.
type yamlList string

// UnmarshalYAML joins the elements of a list with commas, and keeps a string unchanged.
func (l *yamlList) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.SequenceNode {
		return n.Decode((*string)(l))
	}
	var parts []string
	err := n.Decode(&parts)
	*l = yamlList(strings.Join(parts, ","))
	return err
}

// ReadServeConfig reads settings from the file at path. Flags on the command line win. Errors begin
// with the flag's name in from.
func (o *ServeOptions) ReadServeConfig(given func(flag string) bool, from, path string) error {
	if path == "" {
		return nil
	}
	content, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", from, err)}
	}
	s, n := &o.Shim, &o.Shim.Network
	var listen, other string
	file := serveFile{
		Listen: &listen, RuntimeEndpoint: &other, DockerEndpoint: &s.Engine.Host, PauseImage: &s.PauseImage,
		StreamAddress: &s.StreamAddress, StreamCertFile: &s.StreamCertFile, StreamKeyFile: &s.StreamKeyFile,
		StreamIdleTimeout: (*yamlDuration)(&s.StreamIdleTimeout), LinkLogs: &o.linkLogs, LogLevel: &o.logLevel, LogFormat: &o.logFormat,
		CgroupDriver: &s.CgroupDriver, RuntimeCgroups: &s.RuntimeCgroups, RequestTimeout: (*yamlDuration)(&s.Engine.RequestTimeout),
		PullProgressDeadline: (*yamlDuration)(&s.PullProgressDeadline), MetricsAddress: &s.MetricsAddress, ProfileSocket: &s.ProfileSocket, NetworkPlugin: &n.Plugin,
		CNIConfDir: &n.ConfDir, CNIBinDir: (*yamlList)(&o.binDirs), CNICacheDir: &n.CacheDir, PodCIDR: (*yamlList)(&n.PodCIDR),
		MTU: &n.MTU, Hairpin: &n.Hairpin, NonMasqueradeCIDR: (*yamlList)(&n.NonMasqueradeCIDR),
	}
	fields := reflect.ValueOf(&file).Elem()
	for i := range fields.NumField() {
		if given(fields.Type().Field(i).Tag.Get("yaml")) {
			fields.Field(i).Set(reflect.New(fields.Field(i).Type().Elem()))
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	decoder.KnownFields(true)
	if err = decoder.Decode(&file); err == nil {
		if !errors.Is(decoder.Decode(new(yaml.Node)), io.EOF) {
			err = errors.New("must be one document")
		}
	} else if errors.Is(err, io.EOF) {
		err = nil
	}
	switch {
	case err != nil:
	case listen != "" && other != "":
		err = errors.New("listen and container-runtime-endpoint are one setting")
	default:
		err = o.checkWords()
	}
	if err != nil {
		return inputError{fmt.Errorf("--%s: %s: %s", from, path, serveFileError(err, content))}
	}
	if !given("listen") {
		o.Listen = cmp.Or(listen, other, o.Listen)
	}
	return nil
}

var serveFileLine = lazyregexp.New(`line (\d+): `)

// serveFileError returns the library's error in one line, with the key of the line that the error names.
func serveFileError(err error, content []byte) string {
	text := strings.ReplaceAll(err.Error(), " not found in type cli.serveFile", " is unknown")
	text = strings.Join(strings.Fields(strings.ReplaceAll(text, "yaml: unmarshal errors:", "")), " ")
	found, lines := serveFileLine.FindStringSubmatch(text), strings.Split(string(content), "\n")
	if found == nil {
		return text
	}
	n, _ := strconv.Atoi(found[1])
	if key, _, ok := strings.Cut(lines[min(max(n, 1), len(lines))-1], ":"); ok && !strings.Contains(text, key) {
		text = strings.Replace(text, found[0], found[0]+key+": ", 1)
	}
	return text
}

// checkWords checks the values of the file that have no type of their own.
func (o *ServeOptions) checkWords() error {
	s, n := &o.Shim, &o.Shim.Network
	for _, word := range []struct {
		key, value string
		words      []string
	}{
		{"log-level", o.logLevel, logLevels}, {"log-format", o.logFormat, logFormats}, {"cgroup-driver", s.CgroupDriver, cgroupDrivers},
		{FlagNetworkPlugin, n.Plugin, networkPlugins}, {"hairpin-mode", n.Hairpin, hairpinModes},
	} {
		if word.value != "" && !slices.Contains(word.words, word.value) {
			return fmt.Errorf("%s: %w", word.key, MustBe(word.words...))
		}
	}
	var err error
	if _, err = parseCgroup(s.RuntimeCgroups); err != nil {
		return fmt.Errorf("runtime-cgroups: %w", err)
	}
	for key, to := range map[string]*string{"pod-cidr": &n.PodCIDR, "non-masquerade-cidr": &n.NonMasqueradeCIDR} {
		if *to, err = node.PodCIDR(*to); err != nil {
			return fmt.Errorf("%s: %w", key, err)
		}
	}
	return nil
}

var (
	logLevels     = []string{"debug", "info", "warn", "error"}
	logFormats    = []string{"text", "json"}
	cgroupDrivers = []string{"cgroupfs", "systemd"}
	hairpinModes  = []string{"none", "hairpin-veth", "promiscuous-bridge"}

	networkPlugins = []string{shim.PluginBridge, shim.PluginCNI, shim.PluginKubenet}
)

func parseNetworkPlugin(text string) (string, error) {
	if !slices.Contains(networkPlugins, text) {
		return "", MustBe(networkPlugins...)
	}
	return text, nil
}

// defaultListen is the endpoint at which serve listens, and the first candidate of every other command.
const defaultListen = "unix:///run/crishim/crishim.sock"

// ServeOptions are the settings of serve, and of an embedded shim with --shim-config.
type ServeOptions struct {
	Listen              string
	ConfigFile          string
	linkLogs            bool
	logLevel, logFormat string
	binDirs             string
	Shim                shim.Options
}

// NewServeOptions returns the defaults.
func NewServeOptions() *ServeOptions {
	o := &ServeOptions{Listen: defaultListen, logLevel: "info", logFormat: "text"}
	o.Shim = shim.Options{Daemon: true, StreamIdleTimeout: 4 * time.Hour, PullProgressDeadline: time.Minute}
	o.Shim.Engine.RequestTimeout = 2 * time.Minute
	return o
}

// Flags returns the flags of serve, with the names of dockershim and cri-dockerd.
func (o *ServeOptions) Flags() []urfave.Flag {
	s, n := &o.Shim, &o.Shim.Network
	return []urfave.Flag{
		StringFlag(&o.Listen, "listen", "Listen on `ENDPOINT`: unix:///path, or fd:// for systemd's socket", "container-runtime-endpoint"),
		StringFlag(&o.ConfigFile, FlagServeConfig, "Read settings from the YAML `FILE`, with the names of flags as keys; flags on the command line win"),
		StringFlag(&s.Engine.Host, "docker-endpoint", "Use the Docker engine at `ENDPOINT` (env DOCKER_HOST, default the docker context's)"),
		StringFlag(&s.PauseImage, "pod-infra-container-image", "Create pods from `IMAGE` instead of the built-in pause image"),
		StringFlag(&s.StreamAddress, "streaming-bind-addr", "Serve exec, attach and port-forward on `ADDRESS` (default 127.0.0.1 and a free port)"),
		StringFlag(&s.StreamCertFile, "streaming-tls-cert", "Serve streams over TLS with the certificate in `FILE`"),
		StringFlag(&s.StreamKeyFile, "streaming-tls-key", "Use the private key in `FILE` for --streaming-tls-cert"),
		DurationFlag(&s.StreamIdleTimeout, "streaming-connection-idle-timeout", "End an idle session after `DURATION`"),
		BoolFlag(&o.linkLogs, "link-logs", "Link container logs to the engine's files instead of writing them in CRI format"),
		WordFlag(&o.logLevel, logLevels, "log-level", "Log messages of `LEVEL` and above: debug, info, warn, error"),
		WordFlag(&o.logFormat, logFormats, "log-format", "Log as `FORMAT`: text, json"),
		WordFlag(&s.CgroupDriver, cgroupDrivers, "cgroup-driver", "Expect the kubelet's cgroup `DRIVER`, and refuse engines with another: cgroupfs, systemd"),
		Typed(&s.RuntimeCgroups, parseCgroup, "runtime-cgroups", "Keep the engine's processes in `CGROUP`, and protect them from the OOM killer"),
		DurationFlag(&s.Engine.RequestTimeout, "runtime-request-timeout", "Timeout of requests to the engine, except pulls, logs and sessions; a stop also gets its grace period"),
		DurationFlag(&s.PullProgressDeadline, "image-pull-progress-deadline", "Cancel a pull that makes no progress for `DURATION`, or for ten times as long while it unpacks"),
		StringFlag(&s.MetricsAddress, "metrics-addr", "Serve Prometheus metrics at `ADDRESS`, such as 127.0.0.1:9101"),
		StringFlag(&s.ProfileSocket, "profile-socket", "Serve Go profiles on a unix socket at `PATH`, accessible only to its owner"),
		WordFlag(&n.Plugin, networkPlugins, FlagNetworkPlugin, "Connect pods with `PLUGIN`: cni, kubenet, bridge (default cni if it is configured, else the engine's bridge)"),
		StringFlag(&n.ConfDir, "cni-conf-dir", "Read CNI configurations from `DIR` (default /etc/cni/net.d)"),
		StringFlag(&o.binDirs, "cni-bin-dir", "Look for CNI plugins in `DIRS`, separated by commas (default the directories of distributions)"),
		StringFlag(&n.CacheDir, "cni-cache-dir", "Store CNI results in `DIR` (default /var/lib/cni/cache)"),
		CIDRFlag(&n.PodCIDR, "pod-cidr", "Give pods addresses from `CIDR`, or two separated by a comma for dual stack; a kubelet may set it later"),
		IntFlag(&n.MTU, "network-plugin-mtu", "Set the `MTU` of kubenet's bridge (default the kernel's)"),
		WordFlag(&n.Hairpin, hairpinModes, "hairpin-mode", "Let a pod reach itself through its service with `MODE`: none, hairpin-veth, promiscuous-bridge (default none, kubenet's promiscuous-bridge)"),
		CIDRFlag(&n.NonMasqueradeCIDR, "non-masquerade-cidr", "Do not masquerade traffic from kubenet's pods to `CIDR`, or two separated by a comma for dual stack (default the pod CIDR)"),
	}
}

func parseCgroup(text string) (string, error) {
	if text != "" && (!path.IsAbs(text) || path.Clean(text) != text || text == "/") {
		return "", errors.New("must be an absolute path such as /runtime.slice/docker")
	}
	return text, nil
}

// CIDRFlag takes address ranges separated by commas.
func CIDRFlag(to *string, name, usage string, aliases ...string) urfave.Flag {
	return Typed(to, func(text string) (string, error) {
		cidrs, err := node.PodCIDR(text)
		if err != nil {
			err = errors.New(strings.TrimPrefix(err.Error(), Quote(text)+": ")) // the flag's error already has the value
		}
		return cidrs, err
	}, name, usage, aliases...)
}

// Complete checks the flags and the settings of the file.
func (o *ServeOptions) Complete(p *Printer, lookupEnv func(string) (string, bool)) error {
	s, n := &o.Shim, &o.Shim.Network
	masqueraded := strings.Split(n.NonMasqueradeCIDR, ",")
	family := func(cidr string) bool { return strings.Contains(cidr, ":") }
	switch {
	case o.Listen != shim.SystemdEndpoint && !filepath.IsAbs(strings.TrimPrefix(o.Listen, "unix://")):
		return Invalid("listen", o.Listen, "must be unix:///path, /path or fd://")
	case s.Engine.RequestTimeout <= 0:
		return Invalid("runtime-request-timeout", s.Engine.RequestTimeout, "must be above 0, such as 2m")
	case s.StreamIdleTimeout <= 0:
		return Invalid("streaming-connection-idle-timeout", s.StreamIdleTimeout, "must be above 0, such as 4h")
	case (s.StreamCertFile == "") != (s.StreamKeyFile == ""):
		return Usagef("--streaming-tls-cert and --streaming-tls-key belong together")
	case n.MTU < 0:
		return Invalid("network-plugin-mtu", n.MTU, "must not be negative")
	case n.NonMasqueradeCIDR != "" && n.Plugin != shim.PluginKubenet:
		return Usagef("--non-masquerade-cidr needs --network-plugin kubenet: a CNI configuration decides itself what is masqueraded")
	case len(masqueraded) > 2 || len(masqueraded) == 2 && family(masqueraded[0]) == family(masqueraded[1]):
		return Invalid("non-masquerade-cidr", n.NonMasqueradeCIDR, "must be one range of IPv4 and one of IPv6 at most")
	}
	if o.binDirs != "" {
		n.BinDirs = strings.Split(o.binDirs, ",")
	}
	s.Engine.LookupEnv, s.WriteLogs = lookupEnv, !o.linkLogs
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return err
	}
	if p.debug {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	s.Log = slog.New(slog.NewTextHandler(p.Err, options))
	if o.logFormat == "json" {
		s.Log = slog.New(slog.NewJSONHandler(p.Err, options))
	}
	return nil
}
