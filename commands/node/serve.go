package node

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
	urfave "github.com/urfave/cli/v2"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/gogc"
	"github.com/crishim/crishim/shim"
)

// serve is the verb with its settings.
type serve struct {
	*cli.ServeOptions
	version string // version of crishim
}

// NewServe returns the verb that runs the dockershim as a CRI runtime of its own.
func NewServe(in *cli.Invocation) *cli.Verb {
	o := serve{cli.NewServeOptions(), in.OwnVersion()}
	return &cli.Verb{
		Usage: "Run the dockershim as a CRI runtime on a Docker engine",
		Description: cli.WithExamples("Runs the dockershim, which other commands start for themselves, on a socket that a kubelet can use. It runs in the foreground and logs to stderr.",
			"crishim serve", "crishim serve --docker-endpoint unix:///run/user/1000/docker.sock"),
		Flags: o.Flags(),
		GC:    gogc.Serve,
		Check: o.check,
		Run:   o.run,
	}
}

func (o serve) check(in *cli.Invocation, c *urfave.Context) error {
	if err := cli.ArgCount(c, 0, 0); err != nil {
		return err
	}
	if err := o.ReadServeConfig(c.IsSet, cli.FlagServeConfig, o.ConfigFile); err != nil {
		return err
	}
	return o.Complete(in.Printer, in.LookupEnv)
}

// run serves until ctx ends.
func (o serve) run(ctx context.Context, printer *cli.Printer, connector *cli.Connector) error {
	switch connector.ShimFlag() {
	case cli.FlagShimConfig:
		return cli.Usagef("--%s is for other commands: serve takes its settings from --%s", cli.FlagShimConfig, cli.FlagServeConfig)
	case cli.FlagNetworkPlugin:
		return cli.Usagef("--%s before serve is for other commands: put it behind serve", cli.FlagNetworkPlugin)
	}
	// The log's reader may exit, for example at a restart of journald, and SIGPIPE would then end the process. CNI plugins
	// do not inherit a handled signal.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	listener, err := shim.Listen(ctx, o.Listen)
	if err != nil {
		return err
	}
	o.Shim.ExecRecords = execRecords(o.Listen, listener.Addr())
	o.Shim.Tracer = connector.Tracer()
	s, err := shim.New(o.Shim)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	if err := s.Start(ctx); err != nil {
		return errors.Join(err, listener.Close(), s.Close())
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	o.Shim.Log.Info("serving CRI", "endpoint", o.Listen, "version", o.version)
	notifySystemd(o.Shim.Log, daemon.SdNotifyReady)
	alive, quiet := context.WithCancel(ctx)
	defer quiet()
	go watchdog(alive, o.Shim.Log)

	select {
	case err = <-served:
	case <-ctx.Done():
		o.Shim.Log.Info("stopping")
		notifySystemd(o.Shim.Log, daemon.SdNotifyStopping)
	}
	closed := s.Close()
	if ctx.Err() != nil {
		err = <-served
	}
	return cli.Join(err, closed)
}

// execRecords returns the directory of session records. It is next to the socket, so that the next serve process finds
// it. For a socket from systemd, the path is taken from listening. For any other socket, listening has an outdated path:
// serve creates the socket under a temporary path and then renames it.
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

// notifySystemd sends the service state to systemd, if any.
func notifySystemd(log *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		log.Warn("notify systemd", "err", err)
	}
}

// watchdog notifies systemd that the service is alive, twice in each WatchdogSec of its unit, until ctx ends. Without
// WatchdogSec it returns at once.
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
			notifySystemd(log, daemon.SdNotifyWatchdog)
		case <-ctx.Done():
			return
		}
	}
}
