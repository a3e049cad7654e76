package stream

import (
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
	"github.com/go-logr/logr"
	"k8s.io/klog/v2" //nolint:depguard // only to silence what the streaming library logs
)

const (
	// maxHeaderBytes is more than any client sends. The library takes 4 KiB more
	// than it is told, which makes it 16 KiB.
	maxHeaderBytes = 12 << 10

	closeGrace = 2 * time.Second // for sessions to end by themselves when the server closes
)

// Server answers the streaming RPCs and serves their URLs.
type Server struct {
	opts     Options
	engine   Engine
	tokens   *tokens
	sessions sessions
	records  records

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup // handlers and the serving loop
	failed chan error     // has the reason when a listener has ended by itself

	mu      sync.Mutex // guards all below
	started bool
	closed  bool
	base    *url.URL
	tracked *trackedListener
	http    *http.Server
}

// New builds a server; it listens when it is started.
func New(o Options, engine Engine) *Server {
	o = o.withDefaults()
	s := &Server{opts: o, engine: engine, tokens: newTokens(time.Now), records: records{dir: o.RecordDir, log: o.Log}, failed: make(chan error, 1)}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s
}

// Start listens, so that every URL that is handed out later works at once; on
// demand, that is left to the first URL. What is still recorded from before is
// ended first.
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

// listen begins to serve. The caller holds mu.
func (s *Server) listen(ctx context.Context) error {
	config, err := s.tlsConfig()
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	lc.SetMultipathTCP(false) // whose sockets are not in the table that peerLeft reads
	l, err := lc.Listen(ctx, "tcp", s.opts.Address)
	if err != nil {
		return fmt.Errorf("streaming server on %s: %w", s.opts.Address, err)
	}
	s.base = baseURL(l.Addr(), config != nil)
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: s.opts.HeaderTimeout,
		IdleTimeout:       s.opts.HeaderTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          slog.NewLogLogger(s.opts.Log.Handler(), slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return klog.NewContext(s.ctx, logr.Discard()) },
		ConnContext:       withConn,
		// HTTP/2 has no upgrade, which every request here is.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	s.tracked = newTrackedListener(l)
	var serving net.Listener = s.tracked
	if config != nil {
		serving = tls.NewListener(serving, config)
	}
	server := s.http
	s.work.Add(1)
	go func() {
		defer s.work.Done()
		if err := server.Serve(serving); !errors.Is(err, http.ErrServerClosed) {
			select {
			case s.failed <- fmt.Errorf("the streaming server has ended: %w", err):
			default: // the first reason will do
			}
		}
	}()
	return nil
}

// Failed has the reason when the server has ended without Close: every URL that is
// handed out from then on leads nowhere.
func (s *Server) Failed() <-chan error { return s.failed }

// Close stops listening, ends every session, and waits until all are ended.
// What exec started and nobody detached from is killed.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	server, listener := s.http, s.tracked
	s.mu.Unlock()

	s.cancel()
	var err error
	if server != nil {
		err = server.Close()
		// A handler may be blocked by a client that reads nothing.
		timer := time.AfterFunc(closeGrace, listener.closeAll)
		defer timer.Stop()
		defer listener.closeAll()
	}
	s.work.Wait()
	s.records.close()
	return err
}

// errStopping is what sessions end with that the end of the server cut off.
var errStopping = errors.New("the runtime is being stopped")

// why is the reason of a failure where that is the server's own end.
func (s *Server) why(err error) error {
	if s.ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return errStopping
	}
	return err
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

// baseURL is where a client on this machine reaches the server. A listener on
// every address is reached on loopback.
func baseURL(addr net.Addr, secure bool) *url.URL {
	u := &url.URL{Scheme: "http", Host: addr.String()}
	if secure {
		u.Scheme = "https"
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		u.Host = net.JoinHostPort("127.0.0.1", fmt.Sprint(tcp.Port))
	}
	return u
}

// url keeps a request and returns where a client can have it, once.
func (s *Server) url(ctx context.Context, kind string, request any) (string, error) {
	base, err := s.listening(ctx)
	if err != nil {
		return "", err
	}
	token, err := s.tokens.add(request)
	if err != nil {
		return "", err
	}
	return base.JoinPath(kind, token).String(), nil
}

// listening gives the address of the server, which accepts connections by then.
func (s *Server) listening(ctx context.Context) (*url.URL, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.started || s.closed {
		return nil, fmt.Errorf("the streaming server is not running: %w", errdefs.ErrUnavailable)
	}
	if s.base == nil {
		if err := s.listen(ctx); err != nil {
			return nil, err
		}
	}
	return s.base, nil
}
