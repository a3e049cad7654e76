package stream

import (
	"context"
	"net"
	"net/http"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// First parts of the paths of streaming URLs.
const (
	kindExec        = "exec"
	kindAttach      = "attach"
	kindPortForward = "portforward"
)

type connKey struct{}

// withConn lets a handler find the connection it serves.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if tc, ok := tracked(c); ok {
		return context.WithValue(ctx, connKey{}, tc)
	}
	return ctx
}

func (s *Server) handler() http.Handler {
	guard := newGuard(s.base, s.opts.AllowedHosts)
	mux := http.NewServeMux()
	mux.HandleFunc("/{kind}/{token}", s.serve)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, "streaming requests are GET or POST", http.StatusMethodNotAllowed)
			return
		}
		if err := guard.check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// serve hands the connection to the request that its token stands for. The
// request's context ends when the client is gone.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	if !s.begin() {
		http.Error(w, "the streaming server is closing", http.StatusServiceUnavailable)
		return
	}
	defer s.work.Done()

	token := r.PathValue("token")
	request, ok := s.tokens.take(token)
	if !ok || r.PathValue("kind") != kindOf(request) {
		http.Error(w, "this streaming URL is not known: it works once, and for a minute", http.StatusNotFound)
		return
	}
	ctx, cancel := sessionContext(r)
	defer cancel(nil)
	r = r.WithContext(ctx)

	switch request := request.(type) {
	case *ExecRequest:
		s.serveExec(w, r, token, request)
	case *runtimeapi.AttachRequest:
		s.serveAttach(w, r, request)
	case *runtimeapi.PortForwardRequest:
		s.servePortForward(w, r, request)
	}
}

// begin counts one more handler, unless the server is closed.
func (s *Server) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.work.Add(1)
	return true
}

func kindOf(request any) string {
	switch request.(type) {
	case *ExecRequest:
		return kindExec
	case *runtimeapi.AttachRequest:
		return kindAttach
	case *runtimeapi.PortForwardRequest:
		return kindPortForward
	}
	return ""
}

// sessionContext derives a context that ends, with errClientGone as its cause,
// when the other end of the connection is closed.
func sessionContext(r *http.Request) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(r.Context())
	conn, ok := r.Context().Value(connKey{}).(*trackedConn)
	if !ok {
		return ctx, cancel
	}
	go conn.watch(ctx.Done())
	go func() {
		select {
		case <-conn.gone:
			cancel(errClientGone)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}
