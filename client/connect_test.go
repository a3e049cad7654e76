package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/test/stubcri"
)

// longTimeout is a connect timeout that holds on a loaded machine.
const longTimeout = 30 * time.Second

func connect(t *testing.T, o client.Options) *client.Conn {
	t.Helper()
	if o.ConnectTimeout == 0 {
		o.ConnectTimeout = longTimeout
	}
	c, err := client.Connect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return c
}

// refusal expects Connect to fail and returns the error and its hint.
func refusal(t *testing.T, o client.Options) (hint string, err error) {
	t.Helper()
	c, err := client.Connect(t.Context(), o)
	if err == nil {
		_ = c.Close()
		t.Fatal("connected, want an error")
	}
	var h interface{ Hint() string }
	if !errors.As(err, &h) {
		t.Fatalf("%v has no hint", err)
	}
	return h.Hint(), err
}

func TestConnectToExplicitEndpoint(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{Name: "containerd", Version: "2.1.0"})
	for name, endpoint := range map[string]string{
		"url":       s.Endpoint,
		"bare path": strings.TrimPrefix(s.Endpoint, "unix://"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := connect(t, client.Options{RuntimeEndpoint: endpoint})
			if c.RuntimeEndpoint != s.Endpoint || c.ImageEndpoint != s.Endpoint || c.Embedded || c.API() != "v1" {
				t.Errorf("got %s %s %t %s", c.RuntimeEndpoint, c.ImageEndpoint, c.Embedded, c.API())
			}
			if c.Version.GetRuntimeName() != "containerd" {
				t.Errorf("got version %v", c.Version)
			}
			if _, err := c.Image.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestConnectToASocketWithAnOddName(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	odd := filepath.Join(t.TempDir(), "a%zz?b#c")
	if err := os.Symlink(strings.TrimPrefix(s.Endpoint, "unix://"), odd); err != nil {
		t.Fatal(err)
	}
	c := connect(t, client.Options{RuntimeEndpoint: odd})
	if c.Version.GetRuntimeName() != "stubcri" {
		t.Errorf("got %v", c.Version)
	}
}

func TestConnectOverTCP(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go relay(l, strings.TrimPrefix(s.Endpoint, "unix://"))
	c := connect(t, client.Options{RuntimeEndpoint: "tcp://" + l.Addr().String()})
	if c.Version.GetRuntimeName() != "stubcri" {
		t.Errorf("got %v", c.Version)
	}
}

func TestConnectToRuntimeThatOnlyKnowsV1alpha2(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{APIs: []string{"v1alpha2"}})
	s.AddPod("default", "web")
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	if c.API() != "v1alpha2" {
		t.Errorf("got API %s", c.API())
	}
	pods, err := c.Runtime.ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(pods.GetItems()) != 1 {
		t.Errorf("got %v, %v", pods, err)
	}
	if _, err := c.Image.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	events, err := c.Runtime.GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := events.Recv(); status.Code(err) != codes.Canceled {
		t.Errorf("stream: got %v, want it cancelled", err)
	}
}

func TestImageEndpointOfItsOwn(t *testing.T) {
	t.Parallel()
	runtime, image := stubcri.Start(t, stubcri.Options{}), stubcri.Start(t, stubcri.Options{})
	image.AddImage("only-here")
	c := connect(t, client.Options{RuntimeEndpoint: runtime.Endpoint, ImageEndpoint: image.Endpoint})
	r, err := c.Image.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err != nil || len(r.GetImages()) != 1 {
		t.Errorf("got %v, %v", r, err)
	}
}

func TestImageServiceWithoutRuntimeService(t *testing.T) {
	t.Parallel()
	runtime := stubcri.Start(t, stubcri.Options{})
	image := stubcri.Start(t, stubcri.Options{Unimplemented: []string{"Version"}})
	c := connect(t, client.Options{RuntimeEndpoint: runtime.Endpoint, ImageEndpoint: image.Endpoint})
	if _, err := c.Image.ListImages(t.Context(), &runtimeapi.ListImagesRequest{}); err != nil {
		t.Error(err)
	}
	if c.ImageEndpoint != image.Endpoint {
		t.Errorf("got %s", c.ImageEndpoint)
	}
}

func TestConnectRefusals(t *testing.T) {
	t.Parallel()
	dir := filepath.Dir(stubcri.SocketPath(t))
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stale, err := net.ListenUnix("unix", &net.UnixAddr{Name: path("stale")})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	_ = stale.Close()
	silent(t, path("silent"))
	answer := func(name string, code int, body string) string {
		serveHTTP(t, path(name), func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
		return "docker://" + path(name)
	}
	bare := stubcri.Start(t, stubcri.Options{Unimplemented: []string{"Version"}})
	tests := []struct{ name, endpoint, want, hint string }{
		{"absent", path("none"), "no such socket", "crishim endpoints"},
		{"below a file", path("file") + "/x", "no such socket", ""},
		{"a file", path("file"), "it is a file, not a socket", ""},
		{"stale", path("stale"), "connection refused", "leftover"},
		{"silent", path("silent"), "no answer within 300ms", "--connect-timeout"},
		{"no CRI", bare.Endpoint, "serves no CRI", "disabled_plugins"},
		{"closed port", "tcp://127.0.0.1:1", "connection refused", "host and port"},
		{"docker absent", "docker://" + path("none"), "no such socket", ""},
		{"an engine's error", answer("broken", 500, `{"message":"the store is\nread-only"}`), "it answers HTTP 500 Internal Server Error: the store is read-only", "journalctl"},
		{"a proxy's error", answer("proxy", 503, "no backend\n"), "it answers HTTP 503 Service Unavailable: no backend", "journalctl"},
		{"no engine", answer("web", 200, "hello"), "it speaks HTTP, but is no Docker engine", "journalctl"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			timeout := longTimeout
			if tt.name == "silent" {
				timeout = 300 * time.Millisecond
			}
			hint, err := refusal(t, client.Options{RuntimeEndpoint: tt.endpoint, ConnectTimeout: timeout, StartShim: noShim(t)})
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(hint, tt.hint) {
				t.Errorf("got %q, hint %q; want %q, hint %q", err, hint, tt.want, tt.hint)
			}
			if strings.Contains(err.Error(), "rpc error") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one plain sentence", err)
			}
			if status.Code(err) != codes.Unavailable {
				t.Errorf("got code %s", status.Code(err))
			}
		})
	}
}

func TestRetriesWaitForTheSocket(t *testing.T) {
	t.Parallel()
	path := stubcri.SocketPath(t)
	tries := 0
	o := client.Options{RuntimeEndpoint: path, MaxRetries: 2, ConnectTimeout: longTimeout}
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if tries++; tries == 2 {
			stubcri.Start(t, stubcri.Options{Socket: path})
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	connect(t, o)
}

func TestEmbeddedShim(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{Name: "docker", Version: "20.10"})
	engine := stubcri.SocketPath(t)
	fakeEngine(t, engine)
	shim := &fakeShim{endpoint: s.Endpoint}
	c, err := client.Connect(t.Context(), client.Options{RuntimeEndpoint: "docker://" + engine, ConnectTimeout: longTimeout, StartShim: shim.start})
	if err != nil {
		t.Fatal(err)
	}
	if !c.Embedded || c.RuntimeEndpoint != "docker://"+engine || shim.engine.Host != "unix://"+engine {
		t.Errorf("got %t %s %s", c.Embedded, c.RuntimeEndpoint, shim.engine.Host)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if shim.closed != 1 {
		t.Errorf("the shim was closed %d times, want once", shim.closed)
	}
}

// An endpoint that turns out to be a Docker engine's socket is used as docker://.
func TestEngineWhereARuntimeWasNamed(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{Name: "docker", Version: "20.10"})
	engine := stubcri.SocketPath(t)
	fakeEngine(t, engine)
	shim := &fakeShim{endpoint: s.Endpoint}
	o := client.Options{RuntimeEndpoint: "unix://" + engine, ConnectTimeout: longTimeout, StartShim: shim.start}
	c := connect(t, o)
	if !c.Embedded || c.RuntimeEndpoint != "docker://"+engine || c.TakenAs != "unix://"+engine || shim.engine.Host != "unix://"+engine {
		t.Errorf("got %t %s, taken as %q, on %s", c.Embedded, c.RuntimeEndpoint, c.TakenAs, shim.engine.Host)
	}
	list, err := client.Discover(t.Context(), o)
	if err != nil || len(list) == 0 || !list[0].Chosen || list[0].Endpoint != "unix://"+engine {
		t.Errorf("got %v, %v", list, err)
	}
	// Without a shim this is an error, and the hint has the right endpoint.
	o.StartShim = nil
	if hint, err := refusal(t, o); !strings.Contains(err.Error(), "a Docker engine, not a CRI runtime") || !strings.Contains(hint, "-r docker://"+engine) {
		t.Errorf("got %q, hint %q", err, hint)
	}
	// A separate image endpoint cannot be an engine.
	o = client.Options{RuntimeEndpoint: s.Endpoint, ImageEndpoint: "unix://" + engine, ConnectTimeout: longTimeout, StartShim: noShim(t)}
	_, err = connect(t, o).Image.ListImages(t.Context(), &runtimeapi.ListImagesRequest{})
	if err == nil || !strings.Contains(err.Error(), "a Docker engine, not a CRI runtime") {
		t.Errorf("got %v", err)
	}
}

// If the runtime cancels a call, the error has no hint about a skipped runtime.
func TestRuntimeThatCancels(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	s.Fail("Version", status.Error(codes.Canceled, "shutting down"))
	if _, err := refusal(t, client.Options{RuntimeEndpoint: s.Endpoint, ConnectTimeout: longTimeout}); strings.Contains(err.Error(), "precedence") || !strings.HasSuffix(err.Error(), "it has cancelled the call: it may be stopping") {
		t.Errorf("got %q", err)
	}
}

func TestShimThatDoesNotStart(t *testing.T) {
	t.Parallel()
	engine := stubcri.SocketPath(t)
	fakeEngine(t, engine)
	cause := errors.New("no room")
	_, err := refusal(t, client.Options{
		RuntimeEndpoint: "docker://" + engine, ConnectTimeout: longTimeout,
		StartShim: func(context.Context, client.Engine) (client.Shim, error) { return nil, cause },
	})
	if !errors.Is(err, cause) || !strings.Contains(err.Error(), "start the embedded dockershim on docker://"+engine+": no room") {
		t.Errorf("got %v", err)
	}
}

func TestWrongEndpointIsUsage(t *testing.T) {
	t.Parallel()
	for _, o := range []client.Options{{RuntimeEndpoint: "npipe://x"}, {RuntimeEndpoint: "docker://", ImageEndpoint: "tcp://x"}} {
		_, err := client.Connect(t.Context(), o)
		var usage *client.SyntaxError
		if !errors.As(err, &usage) {
			t.Errorf("got %v, want a SyntaxError", err)
		}
	}
}

func TestInterruptedConnect(t *testing.T) {
	t.Parallel()
	path := stubcri.SocketPath(t)
	silent(t, path)
	for name, o := range map[string]client.Options{
		"explicit":  {RuntimeEndpoint: path, ConnectTimeout: longTimeout},
		"automatic": {Known: []client.Known{{Name: "x", Path: path}}, Engines: engines()},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			cancel()
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		_, err := client.Connect(ctx, o)
		if status.Code(err) != codes.Canceled || !strings.HasSuffix(err.Error(), "interrupted") {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestPrivateServicesUseTheSameConnection(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	c := connect(t, client.Options{RuntimeEndpoint: s.Endpoint})
	err := c.ClientConn().Invoke(t.Context(), "/crishim.v1.Nothing/Call", &runtimeapi.VersionRequest{}, &runtimeapi.VersionResponse{}, grpc.WaitForReady(true))
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("got %v, want Unimplemented", err)
	}
}

func TestErrorsOfTheEmbeddedShimNameTheEngine(t *testing.T) {
	t.Parallel()
	s := stubcri.Start(t, stubcri.Options{})
	engine := stubcri.SocketPath(t)
	fakeEngine(t, engine)
	shim := &fakeShim{endpoint: s.Endpoint}
	var said []string
	c := connect(t, client.Options{RuntimeEndpoint: "docker://" + engine, ConnectTimeout: longTimeout, StartShim: shim.start, Debug: func(format string, args ...any) {
		said = append(said, fmt.Sprintf(format, args...))
	}})
	_, err := c.Runtime.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: "nosuch"})
	var worded *client.Error
	if !errors.As(err, &worded) || worded.Code != codes.NotFound || worded.Endpoint != "docker://"+engine {
		t.Errorf("got %v", err)
	}
	if last := said[len(said)-1]; !strings.Contains(last, "ContainerStatus on docker://"+engine+" failed") {
		t.Errorf("debug said %q", last)
	}
}

func TestRetriesWaitForTheEngine(t *testing.T) {
	t.Parallel()
	path := stubcri.SocketPath(t)
	shim := &fakeShim{endpoint: stubcri.Start(t, stubcri.Options{}).Endpoint}
	for _, endpoint := range []string{"docker://", "docker://" + path} {
		tries := 0
		o := client.Options{RuntimeEndpoint: endpoint, MaxRetries: 1, ConnectTimeout: longTimeout, StartShim: shim.start, Engines: engines(path)}
		o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			if address == path {
				if tries++; tries == 1 {
					return nil, syscall.ECONNREFUSED
				}
			}
			return new(net.Dialer).DialContext(ctx, network, address)
		}
		if endpoint == "docker://" {
			fakeEngine(t, path)
		}
		connect(t, o)
	}
}

func TestInterruptedSearchForAnEngine(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, endpoint := range []string{"docker://", "docker:///nonexistent"} {
		_, err := client.Connect(ctx, client.Options{RuntimeEndpoint: endpoint, StartShim: noShim(t)})
		if status.Code(err) != codes.Canceled || err.Error() != "connect to "+endpoint+": interrupted" {
			t.Errorf("got %v", err)
		}
	}
}

func TestHostThatCannotBeLookedUp(t *testing.T) {
	t.Parallel()
	for want, dns := range map[string]*net.DNSError{
		"there is no such host":                  {Err: "no such host", Name: "node", IsNotFound: true},
		"lookup node on dns: server misbehaving": {Err: "server misbehaving", Name: "node", Server: "dns", IsTemporary: true},
		"no answer within 30s":                   {Err: "i/o timeout", Name: "node", IsTimeout: true},
	} {
		_, err := refusal(t, client.Options{RuntimeEndpoint: "tcp://node:1", ConnectTimeout: longTimeout, Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
			return nil, &net.OpError{Op: "dial", Net: network, Err: dns}
		}})
		if err.Error() != "connect to tcp://node:1: "+want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
