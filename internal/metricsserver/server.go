// Package metricsserver serves metrics without a password to scrapers, but not to web pages. It disconnects clients
// that are slow or send too much.
package metricsserver

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/crishim/crishim/internal/webguard"
)

const (
	// readTime limits a request, and the wait for a request.
	readTime = 10 * time.Second
	// maxHeaderBytes is more than any scraper sends. The library adds 4 KiB.
	maxHeaderBytes = 12 << 10
)

type Server struct {
	server *http.Server
	done   chan struct{} // closed when the server has ended; nil before Start
}

func New(address string, handler http.Handler, errorLog *log.Logger) *Server {
	return &Server{server: &http.Server{
		Addr: address, Handler: handler,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, IdleTimeout: readTime, MaxHeaderBytes: maxHeaderBytes,
		ErrorLog: errorLog,
	}}
}

func (s *Server) Start(ctx context.Context) (net.Addr, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", s.server.Addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	s.server.Handler = guard(l.Addr(), writeTime, s.server.Handler)
	s.done = make(chan struct{})
	go func() {
		defer close(s.done)
		_ = s.server.Serve(l) // returns an error when Stop closes the listener
	}()
	return l.Addr(), nil
}

func (s *Server) Stop() error {
	err := s.server.Close()
	if s.done != nil {
		<-s.done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

const writeTime = 30 * time.Second

// guard rejects requests of web pages and limits the time of a response. A listener outside loopback may be scraped
// under any name of the node.
func guard(listener net.Addr, write time.Duration, next http.Handler) http.Handler {
	check := webguard.CheckOrigin
	if listener.(*net.TCPAddr).IP.IsLoopback() {
		check = webguard.Check
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(write))
		next.ServeHTTP(w, r)
	})
}
