package client_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/crishim/crishim/client"
)

// silent listens on a path and never answers.
func silent(t *testing.T, path string) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			_ = c.Close()
		}
	})
}

func fakeEngine(t *testing.T, path string) {
	t.Helper()
	serveHTTP(t, path, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Server", "Docker/20.10.24+dfsg1 (linux)")
		_, _ = io.WriteString(w, "OK")
	})
}

func serveHTTP(t *testing.T, path string, f http.HandlerFunc) {
	t.Helper()
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: f, ReadHeaderTimeout: time.Minute}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
}

// relay forwards connections to a unix socket.
func relay(l net.Listener, path string) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("unix", path)
		if err != nil {
			_ = in.Close()
			continue
		}
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		go func() { _, _ = io.Copy(in, out); _ = in.Close() }()
	}
}

// fakeShim is a shim whose socket is served by the test.
type fakeShim struct {
	endpoint string
	engine   client.Engine
	started  int
	closed   int
}

func (f *fakeShim) start(_ context.Context, e client.Engine) (client.Shim, error) {
	f.engine = e
	f.started++
	return f, nil
}

func (f *fakeShim) Endpoint() string { return f.endpoint }

func (f *fakeShim) Close() error {
	f.closed++
	return nil
}

func noShim(t *testing.T) client.StartShim {
	return func(context.Context, client.Engine) (client.Shim, error) {
		t.Error("the shim was started")
		return nil, context.Canceled
	}
}

func hintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

func engines(paths ...string) func(string) []client.Engine {
	return func(host string) []client.Engine {
		if host != "" {
			return []client.Engine{{Host: host}}
		}
		var out []client.Engine
		for _, path := range paths {
			out = append(out, client.Engine{Host: "unix://" + path})
		}
		return out
	}
}
