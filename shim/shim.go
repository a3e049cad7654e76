package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/metrics"
	"github.com/crishim/crishim/shim/node"
)

// Close waits stopTimeout for running requests and then cancels them. It waits cutOffTimeout for requests that continue
// after the cancellation.
const (
	stopTimeout   = 10 * time.Second
	cutOffTimeout = 2 * time.Second
)

type Options struct {
	Engine               docker.Options
	Log                  *slog.Logger // nil: no logging
	PauseImage           string       // "": the built-in image
	Network              NetworkOptions
	PullProgressDeadline time.Duration // cancels a pull without progress; 0: a minute

	StreamAddress                 string // host:port of the streaming server; "": 127.0.0.1 and a free port
	StreamCertFile, StreamKeyFile string // enables TLS for the streaming server if both are set

	StreamIdleTimeout time.Duration // ends an idle session; 0: 4 hours

	ExecRecords string

	// WriteLogs writes container logs to CRI files. Otherwise a log is a link to the engine's file.
	WriteLogs bool

	// Daemon is set for a shim that serves until it is stopped. It watches the engine.
	Daemon bool
	// CgroupDriver is the kubelet's driver, which the engine's must match; "": unknown.
	CgroupDriver string
	// RuntimeCgroups is a cgroup for the engine's processes; "": they are not moved.
	RuntimeCgroups string
	MetricsAddress string
	ProfileSocket  string

	Tracer trace.TracerProvider

	// temporaries is a file to which the shim writes the engine's address before it creates a temporary container. If the
	// shim is killed, a later command finds the file and removes the container. "": temporary containers have an empty
	// owner label, and no later command removes them.
	temporaries string
}

type Shim struct {
	log     *slog.Logger
	engine  *docker.Client
	service *criService
	watch   *node.Watch     // nil in a shim for one command
	metrics *metrics.Server // nil if metrics are disabled
	socket  string          // unix socket for profiles; "": none
	profile *profiles       // nil until started
	grpc    *server

	close    sync.Once
	closeErr error
}

// New does not connect or start anything. dockershim's counterpart is NewDockerService.
func New(o Options) (*Shim, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s := &Shim{log: o.Log, socket: o.ProfileSocket}
	if o.MetricsAddress != "" {
		s.metrics = metrics.New(o.MetricsAddress, o.Log)
		o.Engine.Observe = s.metrics.Observe
	}
	o.Engine.Tracer = o.Tracer
	var err error
	if s.engine, err = docker.New(o.Engine); err != nil {
		return nil, docker.Worded{Err: err}
	}
	service, private, err := newService(o, s.engine)
	if err != nil {
		return nil, errors.Join(err, s.engine.Close())
	}
	s.service, s.grpc = service, newServer(o.Log, o.Tracer, service, private)
	if o.Daemon {
		s.watch = &node.Watch{
			Node: service.nodeService, Engine: s.engine, Follow: service.lists.Follow, Log: o.Log,
			Check: func(ctx context.Context) {
				if err := service.containerService.RemoveOwned(ctx, ""); err != nil && ctx.Err() == nil {
					o.Log.Warn("helper containers of killed processes are left", "err", err)
				}
				service.sandboxService.CheckNetworks(ctx)
			},
		}
		if socket := s.engine.Endpoint().Socket(); socket != "" && o.RuntimeCgroups != "" {
			s.watch.Keep = func() error { return host.KeepEngine(socket, o.RuntimeCgroups) }
		}
	}
	return s, nil
}

// Start works without the engine, but in a daemon it fails for an incompatible engine, whose API is too old or whose
// cgroup driver differs from Options.CgroupDriver. A shim for one command does not check the engine.
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
	if s.socket != "" {
		var err error
		if s.profile, err = startProfiles(ctx, s.socket); err != nil {
			return fmt.Errorf("serve profiles: %w", err)
		}
	}
	if err := s.service.streamService.Start(ctx); err != nil {
		return fmt.Errorf("start the shim: %w", err)
	}
	s.service.logService.Start()
	return nil
}

// Serve returns nil after Close, or an error if the streaming server has failed.
func (s *Shim) Serve(l net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.grpc.Serve(l) }()
	var err error
	select {
	case err = <-served:
	case <-s.grpc.abandoned:
	case err = <-s.service.streamService.Failed():
		s.grpc.Stop()
		<-served //nolint:errcheck // the streaming server's error is returned
	}
	if err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve CRI on %s: %w", l.Addr(), err)
	}
	return nil
}

// Close waits for running requests and then cancels them.
func (s *Shim) Close() error {
	s.close.Do(func() {
		s.service.eventService.Close() // event streams do not end by themselves
		err := s.grpc.stop(stopTimeout, cutOffTimeout)
		if s.watch != nil {
			s.watch.Stop()
		}
		s.service.logService.Close()
		s.closeErr = errors.Join(err, s.service.streamService.Close(), s.service.statsService.Close(), s.engine.Close())
		s.closeErr = errors.Join(s.closeErr, s.profile.stop())
		if s.metrics != nil {
			s.closeErr = errors.Join(s.closeErr, s.metrics.Stop())
		}
	})
	return s.closeErr
}
