package stream

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"go.opentelemetry.io/otel/trace"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/state"
)

type oneContainer struct {
	Engine
	kind string
}

func (e oneContainer) ContainerInspect(_ context.Context, id string) (container.InspectResponse, error) {
	if id != "known" {
		return container.InspectResponse{}, errdefs.ErrNotFound
	}
	return container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{ID: id, Name: "/k8s_POD_p_n_u_0", HostConfig: &container.HostConfig{}, State: &container.State{Running: true}},
		Config:            &container.Config{Labels: map[string]string{state.LabelType: e.kind}},
	}, nil
}

type goneEngine struct{ Engine }

func (goneEngine) ContainerInspect(context.Context, string) (container.InspectResponse, error) {
	return container.InspectResponse{}, errdefs.ErrUnavailable
}

func TestAnAttachThatTheEngineCutOff(t *testing.T) {
	there := New(Options{}, oneContainer{kind: state.TypeContainer})
	for _, id := range []string{"known", "removed"} {
		if err := there.engineThere(t.Context(), id); err != nil {
			t.Errorf("%s: got %v, want the end of the container", id, err)
		}
	}
	gone := New(Options{}, goneEngine{})
	if err := gone.engineThere(t.Context(), "known"); !errdefs.IsUnavailable(err) {
		t.Errorf("got %v, want that the engine is gone", err)
	}
}

func startServer(t *testing.T, o Options) *Server {
	t.Helper()
	s := New(o, oneContainer{kind: state.TypeContainer})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (s *Server) mustExecURL(t *testing.T) string {
	t.Helper()
	answer, err := s.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: "known", Cmd: []string{"true"}, Stdout: true})
	if err != nil {
		t.Fatal(err)
	}
	return answer.GetUrl()
}

func TestURLsAreAbsoluteAndOnLoopback(t *testing.T) {
	s := startServer(t, Options{})
	if addr, ok := s.listener.Addr().(*net.TCPAddr); !ok || addr.IP.String() != "127.0.0.1" { // the URL of a server on all addresses is on loopback too
		t.Errorf("it listens on %v", addr)
	}
	u, err := url.Parse(s.mustExecURL(t))
	if err != nil || u.Scheme != "http" || u.Hostname() != "127.0.0.1" || u.Port() == "" || !strings.HasPrefix(u.Path, "/exec/") {
		t.Errorf("got %v, %v", u, err)
	}
}

// A session belongs to the trace of the RPC that requested its URL.
func TestSessionsAreInTheTraceOfTheirRequest(t *testing.T) {
	t.Parallel()
	s := startServer(t, Options{})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	for _, want := range []trace.SpanContext{span, {}} {
		u, err := s.url(trace.ContextWithSpanContext(t.Context(), want), "exec", func(_ http.ResponseWriter, r *http.Request) {
			if got := trace.SpanContextFromContext(r.Context()); !got.Equal(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = res.Body.Close()
	}
}

func TestHTTPRequestsThatAreRefused(t *testing.T) {
	s := startServer(t, Options{})
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	used := s.mustExecURL(t)
	for _, test := range []struct {
		name, method, url string
		change            func(*http.Request)
		want              int
	}{
		{name: "other method", method: http.MethodPut, url: s.mustExecURL(t), want: http.StatusMethodNotAllowed},
		{name: "foreign host", url: s.mustExecURL(t), change: func(r *http.Request) { r.Host = "evil.example" }, want: http.StatusForbidden},
		{name: "address of another machine", url: s.mustExecURL(t), change: func(r *http.Request) { r.Host = "192.0.2.1:80" }, want: http.StatusForbidden},
		{name: "foreign origin", url: s.mustExecURL(t), change: func(r *http.Request) { r.Header.Set("Origin", "http://evil.example") }, want: http.StatusForbidden},
		{name: "origin of another local server", url: s.mustExecURL(t), change: func(r *http.Request) { r.Header.Set("Origin", "http://127.0.0.1:1") }, want: http.StatusForbidden},
		{name: "origin of a file", url: s.mustExecURL(t), change: func(r *http.Request) { r.Header.Set("Origin", "null") }, want: http.StatusForbidden},
		{name: "this host", url: s.mustExecURL(t), change: func(r *http.Request) { r.Host = strings.ToUpper(name) + ":10250" }, want: http.StatusBadRequest},
		{name: "own origin", url: s.mustExecURL(t), change: func(r *http.Request) { r.Header.Set("Origin", "http://"+r.URL.Host) }, want: http.StatusBadRequest},
		{name: "no upgrade", url: used, want: http.StatusBadRequest},
		{name: "second use", url: used, want: http.StatusNotFound},
		{name: "token of another kind", url: strings.Replace(s.mustExecURL(t), "/exec/", "/attach/", 1), want: http.StatusNotFound},
		{name: "unknown token", url: s.base.JoinPath("exec", "AAAAAAAAAAAAAAAAAAAAAA").String(), want: http.StatusNotFound},
		{name: "no token", url: s.base.String(), want: http.StatusNotFound},
		{name: "large header", url: s.mustExecURL(t), change: func(r *http.Request) {
			r.Header.Set("X-Large", strings.Repeat("x", 16<<10))
		}, want: http.StatusRequestHeaderFieldsTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			method := test.method
			if method == "" {
				method = http.MethodGet
			}
			request, err := http.NewRequestWithContext(t.Context(), method, test.url, nil)
			if err != nil {
				t.Fatal(err)
			}
			if test.change != nil {
				test.change(request)
			}
			transport := &http.Transport{DisableKeepAlives: true}
			answer, err := transport.RoundTrip(request)
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if answer.StatusCode != test.want {
				body, _ := io.ReadAll(answer.Body)
				t.Errorf("got %s (%s), want %d", answer.Status, body, test.want)
			}
		})
	}
}

// A client that connects but opens no streams does not keep the session.
func TestStreamsMustBeOpenedInTime(t *testing.T) {
	s := startServer(t, Options{CreationTimeout: 10 * time.Millisecond})
	u, err := url.Parse(s.mustExecURL(t))
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, upgradeRequest(u, remotecommand.StreamProtocolV4Name)); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(conn)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 101 ") {
		t.Errorf("got %q, %v, want an upgrade and then the end", answer, err)
	}
}

// With OnDemand the first URL opens the port, and each URL works at once.
func TestAServerOnDemand(t *testing.T) {
	s := startServer(t, Options{OnDemand: true})
	if s.listener != nil {
		t.Fatal("it listens before anybody asked for a URL")
	}
	answers := make(chan error)
	const clients = 20
	for range clients {
		go func() {
			answer, err := s.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: "known", Cmd: []string{"true"}, Stdout: true})
			if err == nil {
				var refused *http.Response
				refused, err = get(answer.GetUrl()) // without an upgrade
				if err == nil && refused.StatusCode != http.StatusBadRequest {
					err = errors.New(refused.Status)
				}
			}
			answers <- err
		}()
	}
	for range clients {
		if err := <-answers; err != nil {
			t.Error(err)
		}
	}
	never := New(Options{OnDemand: true}, nil)
	if err := errors.Join(never.Start(t.Context()), never.Close()); err != nil {
		t.Error(err)
	}
}

func get(url string) (*http.Response, error) {
	answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get(url)
	if err == nil {
		answer.Body.Close()
	}
	return answer, err
}

func TestServerStates(t *testing.T) {
	s := New(Options{}, oneContainer{kind: state.TypeContainer})
	request := &runtimeapi.ExecRequest{ContainerId: "known", Cmd: []string{"true"}, Stdout: true}
	if _, err := s.Exec(t.Context(), request); !errdefs.IsUnavailable(err) {
		t.Errorf("before the start: got %v, want Unavailable", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("start after close: got success")
	}
	for name, o := range map[string]Options{
		"half of TLS":     {CertFile: "cert.pem"},
		"no such files":   {CertFile: "/nonexistent", KeyFile: "/nonexistent"},
		"no such address": {Address: "192.0.2.1:0"},
	} {
		s := New(o, nil)
		if err := s.Start(t.Context()); err == nil {
			t.Errorf("%s: got success", name)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

func TestTLS(t *testing.T) {
	cert, key := test.Certificate(t)
	text, err := os.ReadFile(cert)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(text)
	s := startServer(t, Options{CertFile: cert, KeyFile: key})
	u := s.mustExecURL(t)
	if !strings.HasPrefix(u, "https://127.0.0.1:") {
		t.Fatalf("got %s", u)
	}
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	answer, err := (&http.Client{Transport: transport}).Get(u)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusBadRequest {
		t.Errorf("got %s, want a complaint about the missing upgrade", answer.Status)
	}
}
