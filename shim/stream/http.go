package stream

import (
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/spdystream"
	spdyframe "github.com/moby/spdystream/spdy"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/crishim/crishim/internal/frames"
	"github.com/crishim/crishim/internal/webguard"
)

const (
	tokenLife   = time.Minute
	maxRequests = 1000
)

type tokens struct {
	mu   sync.Mutex
	open map[string]request // by URL path
}

type request struct {
	serve  http.HandlerFunc
	expiry *time.Timer
}

func (t *tokens) add(kind string, serve http.HandlerFunc) (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.open) >= maxRequests {
		return "", fmt.Errorf("%d streaming requests are waiting for their client, try again in a minute: %w",
			len(t.open), errdefs.ErrResourceExhausted)
	}
	if t.open == nil {
		t.open = map[string]request{}
	}
	path := "/" + kind + "/" + rand.Text()
	t.open[path] = request{serve, time.AfterFunc(tokenLife, func() { t.take(path) })}
	return path, nil
}

func (t *tokens) take(path string) (http.HandlerFunc, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.open[path]
	if ok {
		r.expiry.Stop()
		delete(t.open, path)
	}
	return r.serve, ok
}

func (s *Server) handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodPost {
			w.Header().Set("Allow", "GET, POST")
			http.Error(w, "streaming requests are GET or POST", http.StatusMethodNotAllowed)
			return
		}
		if err := webguard.Check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		if !s.begin(&s.handlers) {
			http.Error(w, errStopping.Error(), http.StatusServiceUnavailable)
			return
		}
		defer s.handlers.Done()
		serve, ok := s.tokens.take(r.URL.Path)
		if !ok {
			http.Error(w, "this streaming URL is not known: it works once, and for a minute", http.StatusNotFound)
			return
		}
		serve(w, r)
		if c := connOf(r); c.upgraded.Load() {
			_ = c.Close() // in case a handler has left it open
		}
	})
}

// Limits for the headers of a stream. Clients send three short ones.
const (
	maxStreamHeaders = 16
	maxStreamHeader  = 1 << 10
)

// upgradeSPDY returns nil if the client has gone, or after an error response to a request without SPDY.
func upgradeSPDY(w http.ResponseWriter, r *http.Request, accept func(*spdystream.Stream) bool) *spdystream.Connection {
	if !httpstream.IsUpgradeRequest(r) || !strings.EqualFold(r.Header.Get(httpstream.HeaderUpgrade), spdy.HeaderSpdy31) {
		http.Error(w, "unable to upgrade: the request does not ask for "+spdy.HeaderSpdy31, http.StatusBadRequest)
		return nil
	}
	w.Header().Add(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	w.Header().Add(httpstream.HeaderUpgrade, spdy.HeaderSpdy31)
	w.WriteHeader(http.StatusSwitchingProtocols)
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return nil
	}
	return serveSPDY(conn, buffered, accept)
}

// serveSPDY serves SPDY in the background until either end closes the connection. It resets streams for which accept
// returns false.
func serveSPDY(conn net.Conn, from io.Reader, accept func(*spdystream.Stream) bool) *spdystream.Connection {
	served, err := spdystream.NewConnectionWithOptions(frames.NewConn(conn, from), true,
		spdyframe.WithMaxHeaderCount(maxStreamHeaders), spdyframe.WithMaxHeaderFieldSize(maxStreamHeader))
	if err != nil { // cannot happen: spdystream fails only for an invalid zlib level
		_ = conn.Close()
		return nil
	}
	go served.Serve(func(s *spdystream.Stream) {
		// If the reply cannot be sent because the client has gone, a write to the stream would block forever.
		if s.SendReply(http.Header{}, false) != nil || !accept(s) {
			_ = s.Reset()
		}
	})
	go func() {
		<-served.CloseChan()
		_ = conn.Close() // the client closed the connection or violated the protocol, so nothing reads it
	}()
	return served
}
