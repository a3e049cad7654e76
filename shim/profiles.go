package shim

import (
	"context"
	"net/http"
	"net/http/pprof"
	"time"
)

// profiles serves Go's pprof on a unix socket with mode 0600, because profiles reveal memory contents.
type profiles struct {
	server *http.Server
	done   chan struct{} // closed when the server has ended
}

func startProfiles(ctx context.Context, socket string) (*profiles, error) {
	l, err := Listen(ctx, "unix://"+socket)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	p := &profiles{
		server: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second},
		done:   make(chan struct{}),
	}
	go func() {
		defer close(p.done)
		_ = p.server.Serve(l) // returns an error when stop closes the server
	}()
	return p, nil
}

func (p *profiles) stop() error {
	if p == nil {
		return nil
	}
	err := p.server.Close()
	<-p.done
	return err
}
