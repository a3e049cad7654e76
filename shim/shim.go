package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/metrics"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/node"
)

// stopGrace is how long Close waits for running requests.
const stopGrace = 10 * time.Second

// Options configure a shim. The zero value works with the engine that the
// environment leads to.
type Options struct {
	Engine               docker.Options
	Log                  *slog.Logger // nil: nothing is logged
	PauseImage           string       // "": the built-in pause image
	Network              NetworkOptions
	PullProgressDeadline time.Duration // ends a pull without progress; 0: a minute

	StreamAddress                 string // host:port of the streaming server; "": 127.0.0.1 and a free port
	StreamCertFile, StreamKeyFile string // TLS for the streaming server, when both are set

	StreamIdleTimeout time.Duration // ends a session without any traffic; 0: 4 hours

	// ExecRecords is a directory where running execs are written down, so that
	// what they started can be ended if the shim is killed. "": nowhere.
	ExecRecords string

	// WriteLogs makes the shim write container logs to CRI files while it runs.
	// Otherwise a log is a link to the engine's own file.
	WriteLogs bool

	// Daemon is for a shim that stays: Start refuses an engine that does not fit,
	// and the engine is watched from then on.
	Daemon bool
	// CgroupDriver is the one that the kubelet uses, to be compared with the
	// engine's; "" to leave that out.
	CgroupDriver string
	// RuntimeCgroups is a cgroup for the processes of an engine on this host; "":
	// they stay where they are.
	RuntimeCgroups string
	// MetricsAddress is where to serve metrics and profiles; "": nowhere.
	MetricsAddress string

	observeNetwork network.Observe // nil: nobody wants to know
	temporaries    string          // directory for what is known of temporary containers; "": nothing
}

// Shim is a CRI runtime and image service over a Docker engine.
type Shim struct {
	log     *slog.Logger
	engine  *docker.Client
	service *criService
	watch   *node.Watch // nil for a shim that does not stay

	metrics *metrics.Server // nil where nobody asked for them

	grpc *grpc.Server

	close    sync.Once
	closeErr error
}

// New builds a shim. Nothing is dialled, listened on or started.
func New(o Options) (*Shim, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	var m *metrics.Server
	if o.MetricsAddress != "" {
		m = metrics.New(o.MetricsAddress, o.Log)
		o.Engine.Observe = m.Engine.Observe
		o.observeNetwork = m.Network.Observe
	}
	engine, err := docker.New(o.Engine)
	if err != nil {
		return nil, docker.Worded{Err: err}
	}
	a, err := newService(o, engine)
	if err != nil {
		return nil, errors.Join(err, engine.Close())
	}
	s := &Shim{log: o.Log, engine: engine, service: a, metrics: m, grpc: newServer(o.Log, a)}
	if o.Daemon {
		s.watch = &node.Watch{Node: a.node, Engine: engine, Follow: a.cache.Follow, Check: a.sandboxes.CheckNetworks, Log: o.Log}
		if socket, ok := strings.CutPrefix(engine.Endpoint().Host, "unix://"); ok && o.RuntimeCgroups != "" {
			s.watch.Keep = func() error { return host.KeepEngine(socket, o.RuntimeCgroups) }
		}
	}
	return s, nil
}

// Start begins what runs in the background. It does not need the engine, but it
// is an error when the engine answers and does not fit.
func (s *Shim) Start(ctx context.Context) error {
	if s.watch != nil {
		if err := s.watch.Start(ctx); err != nil {
			return fmt.Errorf("start the shim: %w", err)
		}
	}
	if s.metrics != nil {
		address, err := s.metrics.Start(ctx)
		if err != nil {
			return fmt.Errorf("start the shim: %w", err)
		}
		s.log.Info("serving metrics", "address", address.String())
	}
	if err := s.service.start(ctx); err != nil {
		return fmt.Errorf("start the shim: %w", err)
	}
	return nil
}

// Serve answers CRI requests on l until Close is called, which makes it return
// nil, or the streaming server has ended. It closes l.
func (s *Shim) Serve(l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case err = <-s.service.streams.Failed():
		s.grpc.Stop()
		<-served //nolint:errcheck // the reason is the streaming server's
	}
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CRI on %s: %w", l.Addr(), err)
	}
	return nil
}

// Close lets running requests end for a while, then cuts them off, and frees
// everything that New and Start took.
func (s *Shim) Close() error {
	s.close.Do(func() {
		s.service.interrupt()
		s.stopServing()
		if s.watch != nil {
			s.watch.Stop()
		}
		s.closeErr = errors.Join(s.service.close(), s.engine.Close())
		if s.metrics != nil {
			s.closeErr = errors.Join(s.closeErr, s.metrics.Stop())
		}
	})
	return s.closeErr
}

func (s *Shim) stopServing() {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	select {
	case <-done:
	case <-time.After(stopGrace):
		s.grpc.Stop()
		<-done
	}
}
