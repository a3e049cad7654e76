package commands

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/shim"
)

// defaultListen is where serve listens and every other command looks first.
const defaultListen = "unix:///run/crishim/crishim.sock"

type serveOptions struct {
	listen              string
	configFile          string
	linkLogs            bool
	logLevel, logFormat string
	binDirs             string
	shim                shim.Options
}

// newServe runs the dockershim as a CRI runtime of its own.
func newServe(env *Env) *cli.Command {
	o := newServeOptions()
	return &cli.Command{
		Name:  "serve",
		Usage: "be a CRI runtime on a Docker engine until a signal",
		Description: describe("The dockershim that other commands start for themselves, on a socket that a kubelet can use. It runs in the foreground and logs to stderr.",
			"crishim serve", "crishim serve --listen unix:///tmp/cri.sock --docker-endpoint unix:///var/run/docker.sock"),
		Flags:  o.flags(),
		Action: env.offline(o.check, o.run),
	}
}

func newServeOptions() *serveOptions {
	o := &serveOptions{listen: defaultListen, logLevel: "info", logFormat: "text"}
	o.shim = shim.Options{Daemon: true, StreamIdleTimeout: 4 * time.Hour, PullProgressDeadline: time.Minute}
	o.shim.Engine.RequestTimeout = 2 * time.Minute
	return o
}

// flags are named as dockershim and cri-dockerd named them, where they have them.
func (o *serveOptions) flags() []cli.Flag {
	s, n := &o.shim, &o.shim.Network
	return []cli.Flag{
		stringFlag(&o.listen, "listen", "listen on `ENDPOINT`: unix:///path, or fd:// for systemd's socket", "container-runtime-endpoint"),
		stringFlag(&o.configFile, flagServeConfig, "take flags that are not given from the YAML `FILE`: a line \"name: value\" for each"),
		stringFlag(&s.Engine.Host, "docker-endpoint", "use the Docker engine at `ENDPOINT` (env DOCKER_HOST, default the docker context's)"),
		stringFlag(&s.PauseImage, "pod-infra-container-image", "make pods from `IMAGE` instead of the built-in pause image"),
		stringFlag(&s.StreamAddress, "streaming-bind-addr", "serve exec, attach and port-forward on `ADDRESS` (default 127.0.0.1 and a free port)"),
		stringFlag(&s.StreamCertFile, "streaming-tls-cert", "serve streams over TLS with the certificate in `FILE`"),
		stringFlag(&s.StreamKeyFile, "streaming-tls-key", "the key of the certificate in `FILE`"),
		durationFlag(&s.StreamIdleTimeout, "streaming-connection-idle-timeout", "end an idle session after `DURATION`"),
		boolFlag(&o.linkLogs, "link-logs", "link container logs to the engine's files instead of writing them in CRI format"),
		wordFlag(&o.logLevel, []string{"debug", "info", "warn", "error"}, "log-level", "log from this `LEVEL`: debug, info, warn, error"),
		wordFlag(&o.logFormat, []string{"text", "json"}, "log-format", "log as `FORMAT`: text, json"),
		wordFlag(&s.CgroupDriver, []string{"cgroupfs", "systemd"}, "cgroup-driver", "refuse an engine whose cgroup `DRIVER` is not the kubelet's: cgroupfs, systemd"),
		typed(&s.RuntimeCgroups, parseCgroup, "runtime-cgroups", "keep the engine's processes in the `CGROUP`, with an oom score that spares them"),
		durationFlag(&s.Engine.RequestTimeout, "runtime-request-timeout", "end a request to the engine after `DURATION`, a stop after its grace on top; not pulls, logs and sessions"),
		durationFlag(&s.PullProgressDeadline, "image-pull-progress-deadline", "end a pull that makes no progress for `DURATION`"),
		stringFlag(&s.MetricsAddress, "metrics-addr", "serve Prometheus metrics and profiles at `ADDRESS`, such as 127.0.0.1:9101"),
		wordFlag(&n.Plugin, networkPlugins(), flagNetworkPlugin, "connect pods by `PLUGIN`: cni, kubenet, bridge (default cni where it is configured, else the engine's bridge)"),
		stringFlag(&n.ConfDir, "cni-conf-dir", "`DIRECTORY` of CNI configurations (default /etc/cni/net.d)"),
		stringFlag(&o.binDirs, "cni-bin-dir", "`DIRECTORIES` of CNI plugins, separated by commas (default where distributions put them)"),
		stringFlag(&n.CacheDir, "cni-cache-dir", "`DIRECTORY` of CNI results (default /var/lib/cni/cache)"),
		cidrFlag(&n.PodCIDR, "pod-cidr", "give pods addresses from `CIDR`, two separated by a comma for dual stack; a kubelet may tell it later"),
		intFlag(&n.MTU, "network-plugin-mtu", "`BYTES` of kubenet's largest packet (default the kernel's)"),
		wordFlag(&n.Hairpin, []string{"none", "hairpin-veth", "promiscuous-bridge"}, "hairpin-mode", "let a pod reach itself through its service by `MODE`: none, hairpin-veth, promiscuous-bridge (default none, kubenet's promiscuous-bridge)"),
		cidrFlag(&n.NonMasqueradeCIDR, "non-masquerade-cidr", "let kubenet's pods keep their addresses towards `CIDR`, two separated by a comma for dual stack (default the pod CIDR)"),
	}
}

func parseCgroup(text string) (string, error) {
	if text != "" && (!path.IsAbs(text) || path.Clean(text) != text || text == "/") {
		return "", errors.New("must be an absolute path such as /runtime.slice/docker")
	}
	return text, nil
}

// cidrFlag takes address ranges separated by commas.
func cidrFlag(to *string, name, usage string, aliases ...string) cli.Flag {
	return typed(to, func(text string) (string, error) {
		cidrs, err := shim.PodCIDR(text)
		if err != nil {
			err = errors.New(strings.TrimPrefix(err.Error(), quote(text)+": ")) // which is said already
		}
		return cidrs, err
	}, name, usage, aliases...)
}

func (o *serveOptions) check(env *Env, c *cli.Context) error {
	if err := argCount(c, 0, 0); err != nil {
		return err
	}
	switch env.global.shimFlag() {
	case flagShimConfig:
		return usagef("--%s is for other commands: serve takes its settings from --%s", flagShimConfig, flagServeConfig)
	case flagNetworkPlugin:
		return usagef("--%s before serve is for other commands: put it behind serve", flagNetworkPlugin)
	}
	if err := readServeConfig(c, flagServeConfig, o.configFile); err != nil {
		return err
	}
	return o.complete(env)
}

// complete checks the flags, once those that are in a file are there too.
func (o *serveOptions) complete(env *Env) error {
	s, n := &o.shim, &o.shim.Network
	masqueraded := strings.Split(n.NonMasqueradeCIDR, ",")
	family := func(cidr string) bool { return strings.Contains(cidr, ":") }
	switch {
	case o.listen != shim.SystemdEndpoint && !filepath.IsAbs(strings.TrimPrefix(o.listen, "unix://")):
		return invalid("listen", o.listen, "must be unix:///path, /path or fd://")
	case s.Engine.RequestTimeout <= 0:
		return invalid("runtime-request-timeout", s.Engine.RequestTimeout, "must be above 0, such as 2m")
	case s.StreamIdleTimeout <= 0:
		return invalid("streaming-connection-idle-timeout", s.StreamIdleTimeout, "must be above 0, such as 4h")
	case (s.StreamCertFile == "") != (s.StreamKeyFile == ""):
		return usagef("--streaming-tls-cert and --streaming-tls-key belong together")
	case n.MTU < 0:
		return invalid("network-plugin-mtu", n.MTU, "must not be negative")
	case n.NonMasqueradeCIDR != "" && n.Plugin != shim.PluginKubenet:
		return usagef("--non-masquerade-cidr is for --network-plugin kubenet: a CNI configuration says itself what is masqueraded")
	case len(masqueraded) > 2 || len(masqueraded) == 2 && family(masqueraded[0]) == family(masqueraded[1]):
		return invalid("non-masquerade-cidr", n.NonMasqueradeCIDR, "must be one range of IPv4 and one of IPv6 at most")
	}
	if o.binDirs != "" {
		n.BinDirs = strings.Split(o.binDirs, ",")
	}
	s.Engine.LookupEnv, s.WriteLogs = env.LookupEnv, !o.linkLogs
	return o.makeLog(env)
}

func (o *serveOptions) makeLog(env *Env) error {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.logLevel)); err != nil {
		return err
	}
	if env.global.debug {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	o.shim.Log = slog.New(slog.NewTextHandler(env.Err, options))
	if o.logFormat == "json" {
		o.shim.Log = slog.New(slog.NewJSONHandler(env.Err, options))
	}
	return nil
}

// run serves until ctx ends, which is how it ends well.
func (o *serveOptions) run(ctx context.Context, env *Env) error {
	usualGC(struct{}{})
	// Whoever reads the log may go, as journald does when it is restarted. A write to
	// nobody would end the process. Plugins do not inherit a signal that is taken.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	listener, err := shim.Listen(ctx, o.listen)
	if err != nil {
		return err
	}
	o.shim.ExecRecords = execRecords(o.listen, listener.Addr())
	s, err := shim.New(o.shim)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := s.Start(ctx); err != nil {
		return errors.Join(err, listener.Close(), s.Close())
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	o.shim.Log.Info("serving CRI", "endpoint", o.listen, "version", ownVersion(env))
	tellSystemd(o.shim.Log, daemon.SdNotifyReady)
	alive, quiet := context.WithCancel(ctx)
	defer quiet()
	go watchdog(alive, o.shim.Log)

	select {
	case err = <-served:
	case <-ctx.Done():
		o.shim.Log.Info("stopping")
		tellSystemd(o.shim.Log, daemon.SdNotifyStopping)
	}
	closed := s.Close()
	if ctx.Err() != nil {
		err = <-served
	}
	return join(err, closed)
}

// execRecords is the directory for what is running in sessions, next to the socket,
// so that the next serve on it finds it. Only of systemd's socket the address is
// asked: an own one was made elsewhere and moved.
func execRecords(endpoint string, listening net.Addr) string {
	path := strings.TrimPrefix(endpoint, "unix://")
	if unix, ok := listening.(*net.UnixAddr); ok && endpoint == shim.SystemdEndpoint {
		path = unix.Name
	}
	if !filepath.IsAbs(path) {
		return ""
	}
	return path + ".exec"
}

// tellSystemd says how the service does. That nobody listens is no failure of
// the service.
func tellSystemd(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("systemd cannot be told how the service does", "err", err)
	}
}

// watchdog tells systemd that the service is alive, twice in each WatchdogSec of its
// unit, until ctx ends. Without one it returns at once.
func watchdog(ctx context.Context, log *slog.Logger) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		log.Warn("systemd's watchdog is not served", "err", err)
	}
	if limit <= 0 {
		return
	}
	tick := time.NewTicker(limit / 2)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			tellSystemd(log, daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			return
		}
	}
}
