package reliability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/docker/docker/api/types/filters"
)

// A fault is applied to a single call. The zero value forwards the call.
type fault struct {
	Before func()                    // called before the request is forwarded
	During func()                    // called when the engine has received the whole request
	After  func()                    // called when the engine has answered, before the response is forwarded
	Answer http.HandlerFunc          // answers instead of the engine
	Body   func(io.Reader) io.Reader // replaces the body of the engine's response
}

// rule selects the fault for a call. n counts the calls since the rule was set, from 1.
type rule func(n int, call string) fault

// proxy is a proxy between a shim and its Docker engine that can break single calls: before the engine receives them,
// while it handles them, or after it has answered.
type proxy struct {
	// Host is the proxy's unix:// address.
	Host string

	server *http.Server

	mu    sync.Mutex // guards the fields below
	rule  rule
	event func() fault
	only  []string // container ids for the event filter; nil: all
	calls []string
	down  bool
	hung  chan struct{} // closed when the engine continues; nil while it works
	api   string        // only API version to offer; "": the engine's own
	conns map[net.Conn]struct{}
}

// startProxy starts a proxy for an engine at a unix:// address. It runs until the test ends.
func startProxy(t testing.TB, engine string) *proxy {
	t.Helper()
	socket, ok := strings.CutPrefix(engine, "unix://")
	if !ok {
		t.Skipf("the proxy takes an engine on a unix socket, not %s", engine)
	}
	dir, err := os.MkdirTemp("/tmp", "flt") // a short path for the socket, independent of TMPDIR
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	path := filepath.Join(dir, "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Host: "unix://" + path, conns: map[net.Conn]struct{}{}}
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}}
	quiet := log.New(io.Discard, "", 0)
	p.server = &http.Server{Handler: p.handler(transport, quiet), ErrorLog: quiet, ConnState: p.track}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = p.server.Serve(l)
	}()
	t.Cleanup(func() {
		_ = p.server.Close()
		p.cut()
		<-done
		transport.CloseIdleConnections()
	})
	return p
}

// Set sets the rule for later calls and resets the count. Event streams (see Events) and pings are forwarded and not
// counted, because a shim sends them on its own.
func (p *proxy) Set(next rule) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.rule, p.calls = next, nil
}

// Events sets the rule for later event streams and closes all connections, including open streams.
func (p *proxy) Events(rule func() fault) {
	p.mu.Lock()
	p.event = rule
	p.mu.Unlock()
	p.cut()
}

// Of limits later event streams to these containers and closes open ones, so that other tests on the same engine do not
// cause calls of the shim.
func (p *proxy) Of(containers ...string) {
	p.mu.Lock()
	p.only = containers
	p.mu.Unlock()
	p.cut()
}

// narrowed adds the containers from Of to the filters of an event request.
func (p *proxy) narrowed(r *http.Request) (*http.Request, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.only) == 0 || apiVersion.ReplaceAllString(r.URL.Path, "") != "/events" {
		return r, nil
	}
	query := r.URL.Query()
	args, err := filters.FromJSON(query.Get("filters"))
	if err != nil {
		return nil, err
	}
	for _, id := range p.only {
		args.Add("container", id)
	}
	text, err := filters.ToJSON(args)
	query.Set("filters", text)
	r = r.Clone(r.Context())
	r.URL.RawQuery = query.Encode()
	return r, err
}

// Calls returns the counted calls since the rule was set, such as "POST /containers/create".
func (p *proxy) Calls() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.calls...)
}

// Down simulates a stopped engine: all connections are closed, also new ones. Down(false) ends this.
func (p *proxy) Down(down bool) {
	p.mu.Lock()
	p.down = down
	p.mu.Unlock()
	if down {
		p.cut()
	}
}

// Freeze simulates an engine stopped by SIGSTOP: it accepts connections but answers no request, not even a ping. thaw
// ends this.
func (p *proxy) Freeze() (thaw func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hung := make(chan struct{})
	p.hung = hung
	return sync.OnceFunc(func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.hung = nil
		close(hung)
	})
}

func (p *proxy) frozen() chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hung
}

// Speak simulates an engine that only supports a single API version, such as "1.40", as after an upgrade or downgrade.
// Connections stay open.
func (p *proxy) Speak(version string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.api = version
}

func (p *proxy) spoken() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.api
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
	clear(p.conns)
}

// track keeps connections, including hijacked ones, until they are cut.
func (p *proxy) track(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.conns[c] = struct{}{}
		if p.down {
			_ = c.Close()
		}
	case http.StateClosed:
		delete(p.conns, c)
	}
}

func (p *proxy) handler(transport http.RoundTripper, quiet *log.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if hung := p.frozen(); hung != nil {
			select {
			case <-hung:
			case <-r.Context().Done():
				return
			}
		}
		api := p.spoken()
		if asked := apiVersion.FindString(r.URL.Path); api != "" && asked != "" && asked != "/v"+api {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = fmt.Fprintf(w, `{"message":"client version %s is not supported, the engine speaks API version %s"}`, asked[2:], api)
			return
		}
		f := p.faultOf(r)
		r, err := p.narrowed(r)
		if err != nil {
			panic(err) // shims send valid filters
		}
		if f.Before != nil {
			f.Before()
		}
		if f.Answer != nil {
			f.Answer(w, r)
			return
		}
		if f.During != nil {
			r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{
				WroteRequest: func(httptrace.WroteRequestInfo) { f.During() },
			}))
		}
		reverse := &httputil.ReverseProxy{
			Rewrite:       func(pr *httputil.ProxyRequest) { pr.Out.URL.Scheme, pr.Out.URL.Host = "http", "docker" },
			Transport:     transport,
			FlushInterval: -1,
			ErrorLog:      quiet,
			ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
			ModifyResponse: func(r *http.Response) error {
				if api != "" && r.Header.Get("Api-Version") != "" {
					r.Header.Set("Api-Version", api)
				}
				if f.After != nil {
					f.After()
				}
				if f.Body != nil {
					r.ContentLength = -1
					r.Header.Del("Content-Length")
					r.Body = &faultBody{f.Body(r.Body), r.Body}
				}
				return nil
			},
		}
		reverse.ServeHTTP(w, r)
	})
}

func (p *proxy) faultOf(r *http.Request) fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	call := r.Method + " " + apiVersion.ReplaceAllString(r.URL.Path, "")
	switch call {
	case "GET /events":
		if p.event != nil {
			return p.event()
		}
		return fault{}
	case "GET /_ping", "HEAD /_ping":
		return fault{}
	}
	p.calls = append(p.calls, call)
	if p.rule == nil {
		return fault{}
	}
	return p.rule(len(p.calls), call)
}

var apiVersion = regexp.MustCompile(`^/v[0-9.]+`)

type faultBody struct {
	io.Reader
	under io.Closer
}

func (b *faultBody) Close() error { return b.under.Close() }

func answer(status int, text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

// hang never answers. It returns when the client disconnects.
func hang(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }

func cut(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }

// garble replaces a response by invalid data.
func garble(io.Reader) io.Reader {
	return strings.NewReader("<html>\x00\x1b[2J this is not the engine {")
}

// errCut is the final error of truncate's reader.
var errCut = errors.New("cut")

// truncate forwards n bytes and then breaks the connection.
func truncate(n int64) func(io.Reader) io.Reader {
	return func(r io.Reader) io.Reader { return io.MultiReader(io.LimitReader(r, n), broken{}) }
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errCut }
