package stream

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"go.opentelemetry.io/otel/trace"
)

type Engine interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerAttach(ctx context.Context, id string, o container.AttachOptions) (types.HijackedResponse, error)
	ContainerResize(ctx context.Context, id string, o container.ResizeOptions) error
	ContainerExecCreate(ctx context.Context, id string, o container.ExecOptions) (container.ExecCreateResponse, error)
	ContainerExecAttach(ctx context.Context, execID string, o container.ExecAttachOptions) (types.HijackedResponse, error)
	ContainerExecResize(ctx context.Context, execID string, o container.ResizeOptions) error
	ExecInspector
}

type ExecInspector interface {
	ContainerExecInspect(ctx context.Context, execID string) (container.ExecInspect, error)
}

// Options configure the streaming server. The zero value listens on a free port of 127.0.0.1. A kubelet configured
// dockershim's server with getStreamingConfig.
type Options struct {
	Address           string // host:port to listen on
	CertFile, KeyFile string // enables TLS if both are set
	OnDemand          bool   // listen when the first URL is requested

	// RecordDir is the directory of the records for EndRecorded; "": no records.
	RecordDir string

	// PodIPs returns the addresses of a sandbox whose network namespace cannot be entered.
	PodIPs func(ctx context.Context, sandboxID string) ([]string, error)

	IdleTimeout     time.Duration // limit for an idle connection; 0: 4 hours
	CreationTimeout time.Duration // limit for the client to open its streams; 0: 30 seconds
	HeaderTimeout   time.Duration // limit for the client's request header; 0: 10 seconds
	Log             *slog.Logger  // nil: no logging
}

const (
	// maxHeaderBytes is more than any client sends.
	maxHeaderBytes = 12 << 10

	closeGrace = 2 * time.Second // for clients to receive the result of their sessions when the server closes
)

type Server struct {
	opts       Options
	engine     Engine
	records    records
	tokens     tokens
	detachable sync.Map // *atomic.Bool of each exec session, by URL path

	ctx      context.Context // ends with Close
	cancel   context.CancelCauseFunc
	work     sync.WaitGroup // sessions and the serving loop
	handlers sync.WaitGroup // requests until their clients have the result
	dials    chan struct{}  // semaphore of concurrent dials into pods
	failed   chan error     // receives the reason if the listener fails

	mu       sync.Mutex // guards the fields below
	started  bool
	closed   bool
	base     *url.URL
	listener *listener
	http     *http.Server
}

func New(o Options, engine Engine) *Server {
	o.Address = cmp.Or(o.Address, "127.0.0.1:0")
	o.IdleTimeout = cmp.Or(o.IdleTimeout, 4*time.Hour)
	o.CreationTimeout = cmp.Or(o.CreationTimeout, 30*time.Second)
	o.HeaderTimeout = cmp.Or(o.HeaderTimeout, 10*time.Second)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s := &Server{opts: o, engine: engine, records: records{dir: o.RecordDir, log: o.Log}, dials: make(chan struct{}, maxDials), failed: make(chan error, 1)}
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	return s
}

// Start listens, unless OnDemand is set, and kills recorded processes of an earlier shim.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.started {
		return fmt.Errorf("streaming server was started before: %w", errdefs.ErrFailedPrecondition)
	}
	if err := EndRecorded(ctx, s.opts.RecordDir, s.engine); err != nil {
		s.opts.Log.Warn("processes of an earlier shim may be left", "error", err)
	}
	if !s.opts.OnDemand {
		if err := s.listen(ctx); err != nil {
			return err
		}
	}
	s.started = true
	return nil
}

func (s *Server) listen(ctx context.Context) error {
	config, err := s.tlsConfig()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // MPTCP sockets are not in the table that peerLeft reads
	l, err := lc.Listen(ctx, "tcp", s.opts.Address)
	if err != nil {
		return fmt.Errorf("streaming server on %s: %w", s.opts.Address, err)
	}
	s.listener = &listener{Listener: l, ctx: s.ctx, idle: s.opts.IdleTimeout, conns: map[*conn]struct{}{}}
	s.base = &url.URL{Scheme: "http", Host: l.Addr().String()}
	if tcp := l.Addr().(*net.TCPAddr); tcp.IP.IsUnspecified() {
		s.base.Host = fmt.Sprint("127.0.0.1:", tcp.Port) // address for clients on this machine
	}
	var serving net.Listener = s.listener
	if config != nil {
		s.base.Scheme = "https"
		serving = tls.NewListener(serving, config)
	}
	server := &http.Server{
		Handler:        s.handler(),
		ReadTimeout:    s.opts.HeaderTimeout, // also limits an unexpected body and the wait for the next request
		MaxHeaderBytes: maxHeaderBytes,
		ErrorLog:       slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
		ConnContext:    requestContext,
		ConnState:      onState,
		// HTTP/2 has no upgrade, which every request here needs.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	s.http = server
	s.work.Go(func() {
		if err := server.Serve(serving); !errors.Is(err, http.ErrServerClosed) {
			s.failed <- fmt.Errorf("the streaming server has ended: %w", err)
		}
	})
	return nil
}

func (s *Server) tlsConfig() (*tls.Config, error) {
	if s.opts.CertFile == "" && s.opts.KeyFile == "" {
		return nil, nil
	}
	if s.opts.CertFile == "" || s.opts.KeyFile == "" {
		return nil, fmt.Errorf("streaming over TLS needs a certificate and a key: %w", errdefs.ErrInvalidArgument)
	}
	cert, err := tls.LoadX509KeyPair(s.opts.CertFile, s.opts.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate of the streaming server: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}, nil
}

func (s *Server) url(ctx context.Context, kind string, serve http.HandlerFunc) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.closed {
		return "", fmt.Errorf("the streaming server is not running: %w", errdefs.ErrUnavailable)
	}
	if s.base == nil {
		if err := s.listen(ctx); err != nil {
			return "", err
		}
	}
	path, err := s.tokens.add(kind, inTraceOf(ctx, serve))
	if err != nil {
		return "", err
	}
	return s.base.JoinPath(path).String(), nil
}

// inTraceOf makes spans of serve children of the span of the RPC that requested the URL.
func inTraceOf(ctx context.Context, serve http.HandlerFunc) http.HandlerFunc {
	span := trace.SpanContextFromContext(ctx)
	if !span.IsValid() {
		return serve
	}
	return func(w http.ResponseWriter, r *http.Request) {
		serve(w, r.WithContext(trace.ContextWithSpanContext(r.Context(), span)))
	}
}

func (s *Server) begin(what *sync.WaitGroup) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	what.Add(1)
	return true
}

// Failed receives the reason if the server ends without Close.
func (s *Server) Failed() <-chan error { return s.failed }

// Close ends every session and waits for it. Processes of execs are killed unless they are detached.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	server, listener := s.http, s.listener
	s.mu.Unlock()

	s.cancel(errStopping)
	var err error
	if server != nil {
		err = server.Close()
	}
	if listener != nil {
		// Kill processes first, then give clients a moment to receive the result.
		within(&s.work, killTime)
		within(&s.handlers, closeGrace)
		listener.closeAll()
	}
	s.handlers.Wait()
	s.work.Wait()
	s.records.close()
	return err
}

func within(group *sync.WaitGroup, limit time.Duration) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		group.Wait()
	}()
	select {
	case <-done:
	case <-time.After(limit):
	}
}

var errStopping = errors.New("the runtime is being stopped")
