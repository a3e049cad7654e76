package client_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/crishim/crishim/client"
)

// silent listens at a path and never answers.
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

// fakeEngine answers a ping as Docker does.
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

// relay passes connections on to a unix socket.
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

// fakeShim is a shim whose socket somebody else serves.
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

// writeContext makes a docker context and the current one of a config folder.
func writeContext(t *testing.T, dir, name, host string) {
	t.Helper()
	meta := filepath.Join(dir, "contexts", "meta", fmt.Sprintf("%x", sha256.Sum256([]byte(name))))
	if err := os.MkdirAll(meta, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		filepath.Join(meta, "meta.json"):  fmt.Sprintf(`{"Name":%q,"Metadata":{},"Endpoints":{"docker":{"Host":%q,"SkipTLSVerify":false}}}`, name, host),
		filepath.Join(dir, "config.json"): fmt.Sprintf(`{"auths":{},"currentContext":%q}`, name),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
