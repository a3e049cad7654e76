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
	"github.com/crishim/crishim/shim/docker"
)

// defaultListen is where serve listens and every other command looks first.
const defaultListen = "unix:///run/crishim/crishim.sock"

// newServe runs the dockershim as a CRI runtime of its own.
func newServe(env *Env) *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "be a CRI runtime on a Docker engine until a signal",
		Description: describe("The dockershim that other commands start for themselves, on a socket that a kubelet can use. It runs in the foreground and logs to stderr.",
			"crishim serve", "crishim serve --listen unix:///tmp/cri.sock --docker-endpoint unix:///var/run/docker.sock"),
		Flags:  serveFlags(),
		Action: action(env, serveOptionsOf, runServe),
	}
}

func serveFlags() []cli.Flag {
	return append([]cli.Flag{
		&cli.StringFlag{Name: "listen", Aliases: []string{"container-runtime-endpoint"}, Value: defaultListen, Usage: "listen on `ENDPOINT`: unix:///path, or fd:// for systemd's socket"},
		&cli.StringFlag{Name: flagServeConfig, Usage: "take flags that are not given from the YAML `FILE`: a line \"name: value\" for each"},
		&cli.StringFlag{Name: "docker-endpoint", Usage: "use the Docker engine at `ENDPOINT` (env DOCKER_HOST, default the docker context's)"},
		&cli.StringFlag{Name: "pod-infra-container-image", Usage: "make pods from `IMAGE` instead of the built-in pause image"},
		&cli.StringFlag{Name: "streaming-bind-addr", Usage: "serve exec, attach and port-forward on `ADDRESS` (default 127.0.0.1 and a free port)"},
		&cli.StringFlag{Name: "streaming-tls-cert", Usage: "serve streams over TLS with the certificate in `FILE`"},
		&cli.StringFlag{Name: "streaming-tls-key", Usage: "the key of the certificate in `FILE`"},
		&cli.DurationFlag{Name: "streaming-connection-idle-timeout", Value: 4 * time.Hour, Usage: "end a session without any traffic after `DURATION`"},
		&cli.BoolFlag{Name: "link-logs", Usage: "link container logs to the engine's files instead of writing them in CRI format"},
		&cli.StringFlag{Name: "log-level", Value: "info", Usage: "log from this `LEVEL`: debug, info, warn, error"},
		&cli.StringFlag{Name: "log-format", Value: "text", Usage: "log as `FORMAT`: text, json"},
		&cli.StringFlag{Name: "cgroup-driver", Usage: "refuse an engine whose cgroup `DRIVER` is not the kubelet's: cgroupfs, systemd"},
		&cli.StringFlag{Name: "runtime-cgroups", Usage: "keep the engine's processes in the `CGROUP`, with an oom score that spares them"},
		&cli.DurationFlag{Name: "runtime-request-timeout", Value: 2 * time.Minute, Usage: "give the engine `DURATION` for a request, and a stop its grace on top; not for pulls, logs and sessions"},
		&cli.DurationFlag{Name: "image-pull-progress-deadline", Value: time.Minute, Usage: "end a pull that makes no progress for `DURATION`"},
		&cli.StringFlag{Name: "metrics-addr", Usage: "serve Prometheus metrics and profiles at `ADDRESS`, such as 127.0.0.1:9101"},
	}, networkFlags()...)
}

type serveOptions struct {
	listen string
	shim   shim.Options
}

func serveOptionsOf(env *Env, c *cli.Context) (o serveOptions, err error) {
	if err = noArgs(c); err != nil {
		return o, err
	}
	switch env.global.shimFlag() {
	case flagShimConfig:
		return o, usagef("--%s is for other commands: serve takes its settings from --%s", flagShimConfig, flagServeConfig)
	case flagNetworkPlugin:
		return o, usagef("--%s before serve is for other commands: put it behind serve", flagNetworkPlugin)
	}
	if err = readServeConfig(c, flagServeConfig, c.String(flagServeConfig)); err != nil {
		return o, err
	}
	return serveSettings(env, c)
}

// serveSettings are the flags of serve, once those that are in a file are there too.
func serveSettings(env *Env, c *cli.Context) (o serveOptions, err error) {
	o.listen = c.String("listen")
	if o.listen != shim.SystemdEndpoint && !filepath.IsAbs(strings.TrimPrefix(o.listen, "unix://")) {
		return o, usagef("--listen %s: want unix:///path, /path or fd://", quote(o.listen))
	}
	o.shim = shim.Options{
		Engine:        docker.Options{Host: c.String("docker-endpoint"), LookupEnv: env.LookupEnv},
		PauseImage:    c.String("pod-infra-container-image"),
		StreamAddress: c.String("streaming-bind-addr"),

		StreamCertFile: c.String("streaming-tls-cert"),
		StreamKeyFile:  c.String("streaming-tls-key"),
		WriteLogs:      !c.Bool("link-logs"),
	}
	o.shim.Engine.RequestTimeout = c.Duration("runtime-request-timeout")
	if o.shim.Engine.RequestTimeout <= 0 {
		return o, usagef("--runtime-request-timeout %s: want a duration above 0, such as 2m", o.shim.Engine.RequestTimeout)
	}
	if (o.shim.StreamCertFile == "") != (o.shim.StreamKeyFile == "") {
		return o, usagef("--streaming-tls-cert and --streaming-tls-key belong together")
	}
	o.shim.StreamIdleTimeout = c.Duration("streaming-connection-idle-timeout")
	if o.shim.StreamIdleTimeout <= 0 {
		return o, usagef("--streaming-connection-idle-timeout %s: want a duration above 0, such as 4h", o.shim.StreamIdleTimeout)
	}
	o.shim.Daemon = true
	o.shim.MetricsAddress = c.String("metrics-addr")
	o.shim.CgroupDriver = c.String("cgroup-driver")
	o.shim.RuntimeCgroups = c.String("runtime-cgroups")
	if g := o.shim.RuntimeCgroups; g != "" && (!path.IsAbs(g) || path.Clean(g) != g || g == "/") {
		return o, usagef("--runtime-cgroups %s: want an absolute path such as /runtime.slice/docker", quote(g))
	}
	o.shim.PullProgressDeadline = c.Duration("image-pull-progress-deadline")
	if o.shim.Network, err = readNetwork(c); err != nil {
		return o, err
	}
	switch o.shim.CgroupDriver {
	case "", "cgroupfs", "systemd":
	default:
		return o, usagef("--cgroup-driver %s: want cgroupfs or systemd", quote(o.shim.CgroupDriver))
	}
	o.shim.Log, err = serveLog(env, c)
	return o, err
}

func serveLog(env *Env, c *cli.Context) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(c.String("log-level"))); err != nil {
		return nil, usagef("--log-level %s: want debug, info, warn or error", quote(c.String("log-level")))
	}
	if env.global.debug {
		level = slog.LevelDebug
	}
	options := &slog.HandlerOptions{Level: level}
	switch c.String("log-format") {
	case "text":
		return slog.New(slog.NewTextHandler(env.Err, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(env.Err, options)), nil
	}
	return nil, usagef("--log-format %s: want text or json", quote(c.String("log-format")))
}

// runServe serves until ctx ends, which is how it ends well.
func runServe(ctx context.Context, env *Env, o serveOptions) error {
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

// execRecords is the directory for what is running in sessions, beside the socket,
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
