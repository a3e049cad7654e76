package cli

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli/crifile"
	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/node"
	urfave "github.com/urfave/cli/v2"
)

// Flags that several places name.
const (
	FlagServeConfig   = "config-file"
	FlagShimConfig    = "shim-config"
	FlagNetworkPlugin = "network-plugin"
)

// ReadServeConfig takes flags from a file that a flag, or what stands for it, has
// named: a YAML map from the names of serve's flags, also their other names, to their
// values. Flags of the command line win.
func ReadServeConfig(c *urfave.Context, from, path string) error {
	if path == "" {
		return nil
	}
	content, err := bounded.ReadFile(path, bounded.Config)
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", from, err)}
	}
	known, given, set := map[string]string{}, map[string]bool{}, map[string]bool{}
	var names []string
	for _, f := range c.Command.Flags {
		own := f.Names()
		if own[0] == FlagServeConfig {
			continue
		}
		given[own[0]] = c.IsSet(own[0])
		names = append(names, own...)
		for _, name := range own {
			known[name] = own[0]
		}
	}
	err = crifile.Settings(path, content, names, func(name, value string) error {
		flag := known[name]
		if set[flag] {
			return errors.New("this flag is set twice")
		}
		set[flag] = true
		if given[flag] {
			return nil
		}
		return c.Set(flag, value)
	})
	if err != nil {
		return inputError{fmt.Errorf("--%s: %w", from, err)}
	}
	return nil
}

// ShimOptions returns the settings of an embedded shim: those of a file in which the flags
// of serve are, and the network plugin, each named by a flag, the environment or the
// config file. A shim that stays takes all of them but where to listen and on which
// engine, which come from the endpoint. For a single command there are those about pods and
// images.
func (env *Env) ShimOptions(config *client.Config, stays bool) (o shim.Options, err error) {
	path := cmp.Or(env.global.shimConfig, env.getenv("CRISHIM_SHIM_CONFIG"), config.ShimConfig)
	if path != "" {
		all, err := readShimConfig(env, path)
		if err != nil {
			return o, err
		}
		o = all.Shim
		if !stays {
			o = shim.Options{Network: o.Network, PauseImage: o.PauseImage, PullProgressDeadline: o.PullProgressDeadline, CgroupDriver: o.CgroupDriver}
		}
	}
	// What some other tool has left in /etc/cni/net.d must not change what a command does.
	o.Network.Plugin = cmp.Or(env.global.networkPlugin, env.getenv("CRISHIM_NETWORK_PLUGIN"), config.NetworkPlugin, o.Network.Plugin, shim.PluginBridge)
	if _, err := parseNetworkPlugin(o.Network.Plugin); err != nil {
		return o, Usagef("invalid CRISHIM_NETWORK_PLUGIN %s: %v", Quote(o.Network.Plugin), err)
	}
	if o.Network.Plugin == shim.PluginKubenet && o.Network.PodCIDR == "" {
		return o, Usagef("network plugin kubenet needs the pod CIDR: give pod-cidr in the file of --%s", FlagShimConfig)
	}
	return o, nil
}

func networkPlugins() []string {
	return []string{shim.PluginBridge, shim.PluginCNI, shim.PluginKubenet}
}

func parseNetworkPlugin(text string) (string, error) {
	if !slices.Contains(networkPlugins(), text) {
		return "", MustBe(networkPlugins()...)
	}
	return text, nil
}

// readShimConfig reads serve's flags from a file alone.
func readShimConfig(env *Env, path string) (*ServeOptions, error) {
	o := NewServeOptions()
	set := flag.NewFlagSet("serve", flag.ContinueOnError)
	flags := o.Flags()
	for _, f := range flags {
		if err := f.Apply(set); err != nil {
			return nil, fmt.Errorf("flags of serve: %w", err)
		}
	}
	c := urfave.NewContext(nil, set, nil)
	c.Command = &urfave.Command{Flags: flags}
	if err := ReadServeConfig(c, FlagShimConfig, path); err != nil {
		return nil, err
	}
	return o, o.Complete(env)
}

// defaultListen is where serve listens and every other command looks first.
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

// Flags are named as dockershim and cri-dockerd named them, where they have them.
func (o *ServeOptions) Flags() []urfave.Flag {
	s, n := &o.Shim, &o.Shim.Network
	return []urfave.Flag{
		StringFlag(&o.Listen, "listen", "listen on `ENDPOINT`: unix:///path, or fd:// for systemd's socket", "container-runtime-endpoint"),
		StringFlag(&o.ConfigFile, FlagServeConfig, "take flags that are not given from the YAML `FILE`: a line \"name: value\" for each"),
		StringFlag(&s.Engine.Host, "docker-endpoint", "use the Docker engine at `ENDPOINT` (env DOCKER_HOST, default the docker context's)"),
		StringFlag(&s.PauseImage, "pod-infra-container-image", "make pods from `IMAGE` instead of the built-in pause image"),
		StringFlag(&s.StreamAddress, "streaming-bind-addr", "serve exec, attach and port-forward on `ADDRESS` (default 127.0.0.1 and a free port)"),
		StringFlag(&s.StreamCertFile, "streaming-tls-cert", "serve streams over TLS with the certificate in `FILE`"),
		StringFlag(&s.StreamKeyFile, "streaming-tls-key", "the key of the certificate in `FILE`"),
		DurationFlag(&s.StreamIdleTimeout, "streaming-connection-idle-timeout", "end an idle session after `DURATION`"),
		BoolFlag(&o.linkLogs, "link-logs", "link container logs to the engine's files instead of writing them in CRI format"),
		WordFlag(&o.logLevel, []string{"debug", "info", "warn", "error"}, "log-level", "log from this `LEVEL`: debug, info, warn, error"),
		WordFlag(&o.logFormat, []string{"text", "json"}, "log-format", "log as `FORMAT`: text, json"),
		WordFlag(&s.CgroupDriver, []string{"cgroupfs", "systemd"}, "cgroup-driver", "refuse an engine whose cgroup `DRIVER` is not the kubelet's: cgroupfs, systemd"),
		Typed(&s.RuntimeCgroups, parseCgroup, "runtime-cgroups", "keep the engine's processes in the `CGROUP`, with an oom score that spares them"),
		DurationFlag(&s.Engine.RequestTimeout, "runtime-request-timeout", "end a request to the engine after `DURATION`, a stop after its grace on top; not pulls, logs and sessions"),
		DurationFlag(&s.PullProgressDeadline, "image-pull-progress-deadline", "end a pull that makes no progress for `DURATION`"),
		StringFlag(&s.MetricsAddress, "metrics-addr", "serve Prometheus metrics at `ADDRESS`, such as 127.0.0.1:9101"),
		StringFlag(&s.ProfileSocket, "profile-socket", "serve Go's profiles on a unix socket at `PATH`, for its owner only"),
		WordFlag(&n.Plugin, networkPlugins(), FlagNetworkPlugin, "connect pods by `PLUGIN`: cni, kubenet, bridge (default cni where it is configured, else the engine's bridge)"),
		StringFlag(&n.ConfDir, "cni-conf-dir", "`DIRECTORY` of CNI configurations (default /etc/cni/net.d)"),
		StringFlag(&o.binDirs, "cni-bin-dir", "`DIRECTORIES` of CNI plugins, separated by commas (default where distributions put them)"),
		StringFlag(&n.CacheDir, "cni-cache-dir", "`DIRECTORY` of CNI results (default /var/lib/cni/cache)"),
		CIDRFlag(&n.PodCIDR, "pod-cidr", "give pods addresses from `CIDR`, two separated by a comma for dual stack; a kubelet may set it later"),
		IntFlag(&n.MTU, "network-plugin-mtu", "`MTU` of kubenet's bridge (default the kernel's)"),
		WordFlag(&n.Hairpin, []string{"none", "hairpin-veth", "promiscuous-bridge"}, "hairpin-mode", "let a pod reach itself through its service by `MODE`: none, hairpin-veth, promiscuous-bridge (default none, kubenet's promiscuous-bridge)"),
		CIDRFlag(&n.NonMasqueradeCIDR, "non-masquerade-cidr", "let kubenet's pods keep their addresses towards `CIDR`, two separated by a comma for dual stack (default the pod CIDR)"),
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
			err = errors.New(strings.TrimPrefix(err.Error(), Quote(text)+": ")) // which is said already
		}
		return cidrs, err
	}, name, usage, aliases...)
}

// Complete checks the flags, once those that are in a file are there too.
func (o *ServeOptions) Complete(env *Env) error {
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
	s.Engine.LookupEnv, s.WriteLogs = env.LookupEnv, !o.linkLogs
	return o.makeLog(env)
}

func (o *ServeOptions) makeLog(env *Env) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return err
	}
	if env.global.debug {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	o.Shim.Log = slog.New(slog.NewTextHandler(env.Err, options))
	if o.logFormat == "json" {
		o.Shim.Log = slog.New(slog.NewJSONHandler(env.Err, options))
	}
	return nil
}
