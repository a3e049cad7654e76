package stream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"
	utilexec "k8s.io/utils/exec"

	"github.com/crishim/crishim/internal/test"
)

// patience limits waits in tests. Only a failing test waits that long.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if url := os.Getenv(helperURL); url != "" {
		os.Exit(helper(url))
	}
	klog.SetLogger(klog.Logger{}) // tests provoke errors in the server
	test.MainWithLeakCheck(m,
		// The SPDY library waits 30 s for the reply to a stream even after the connection has gone; see spdyConn.open.
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Stream).WaitTimeout"),
		// The test server writes to a stream before it has replied to it, and waits forever if the client has gone.
		// Only the test runs this server.
		goleak.IgnoreAnyFunction("k8s.io/cri-streaming/pkg/streaming/portforward.(*httpStreamHandler).portForward"))
}

// process holds the streams of a fake command.
type process struct {
	In       io.Reader
	Out, Err io.WriteCloser
	Resize   <-chan remotecommand.TerminalSize
}

func exit(code int) error {
	return utilexec.CodeExitError{Err: fmt.Errorf("exit status %d", code), Code: code}
}

// container is a runtime in which every command is the function run. It uses the streaming server of real runtimes.
type container struct {
	run     func(p process) error
	forward func(ctx context.Context, port int32, stream io.ReadWriteCloser) error
	http    *httptest.Server
	streams streaming.Server
}

func (c *container) Exec(_ context.Context, _ string, _ []string, in io.Reader, out, err io.WriteCloser, _ bool, resize <-chan remotecommand.TerminalSize) error {
	return c.run(process{In: in, Out: out, Err: err, Resize: resize})
}

func (c *container) Attach(ctx context.Context, id string, in io.Reader, out, err io.WriteCloser, tty bool, resize <-chan remotecommand.TerminalSize) error {
	return c.Exec(ctx, id, nil, in, out, err, tty, resize)
}

func (c *container) PortForward(ctx context.Context, _ string, port int32, stream io.ReadWriteCloser) error {
	return c.forward(ctx, port, stream)
}

func (c *container) start(t *testing.T) *container {
	t.Helper()
	c.http = httptest.NewUnstartedServer(nil)
	cfg := streaming.DefaultConfig
	cfg.BaseURL = &url.URL{Scheme: "http", Host: c.http.Listener.Addr().String()}
	var err error
	if c.streams, err = streaming.NewServer(cfg, c); err != nil {
		t.Fatal(err)
	}
	c.http.Config.Handler = c.streams
	c.http.Start()
	t.Cleanup(c.http.Close)
	return c
}

func (c *container) execURL(t *testing.T, s Streams) string {
	t.Helper()
	resp, err := c.streams.GetExec(&runtimeapi.ExecRequest{
		ContainerId: "c", Cmd: []string{"cmd"}, Tty: s.TTY,
		Stdin: s.In != nil, Stdout: s.Out != nil, Stderr: s.Err != nil && !s.TTY,
	})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Url
}

func (c *container) forwardURL(context.Context) (string, error) {
	resp, err := c.streams.GetPortForward(&runtimeapi.PortForwardRequest{PodSandboxId: "p"})
	return resp.GetUrl(), err
}

// within fails the test if f does not return in time.
func within(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		t.Fatalf("%s did not end", what)
		return nil
	}
}

// refuseSPDY wraps h in a server that accepts only WebSocket.
func refuseSPDY(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" {
			http.Error(w, "WebSocket only", http.StatusBadRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

var errBoom = errors.New("boom")
