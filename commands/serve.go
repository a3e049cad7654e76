package commands

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/urfave/cli/v2"

	"github.com/crishim/crishim/shim"
)

// serve is the verb with its settings.
type serve struct{ *serveOptions }

// newServe runs the dockershim as a CRI runtime of its own.
func newServe(env *Env) *cli.Command {
	o := serve{newServeOptions()}
	return &cli.Command{
		Name:  "serve",
		Usage: "be a CRI runtime on a Docker engine until a signal",
		Description: describe("The dockershim that other commands start for themselves, on a socket that a kubelet can use. It runs in the foreground and logs to stderr.",
			"crishim serve", "crishim serve --listen unix:///tmp/cri.sock --docker-endpoint unix:///var/run/docker.sock"),
		Flags:  o.flags(),
		Action: env.offline(o.check, o.run),
	}
}

func (o serve) check(env *Env, c *cli.Context) error {
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

// run serves until ctx ends, which is how it ends well.
func (o serve) run(ctx context.Context, env *Env) error {
	usualGC()
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
