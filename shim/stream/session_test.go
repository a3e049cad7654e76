package stream

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/gorilla/websocket"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// helloEngine runs commands that print hello and exit with 3.
type helloEngine struct{ oneContainer }

func (helloEngine) ContainerExecCreate(context.Context, string, container.ExecOptions) (container.ExecCreateResponse, error) {
	return container.ExecCreateResponse{ID: "exec"}, nil
}

func (helloEngine) ContainerExecAttach(context.Context, string, container.ExecAttachOptions) (types.HijackedResponse, error) {
	ours, engine := net.Pipe()
	go func() {
		defer engine.Close()
		_, _ = io.WriteString(engine, "hello")
	}()
	return types.NewHijackedResponse(ours, ""), nil
}

func (helloEngine) ContainerExecInspect(context.Context, string) (container.ExecInspect, error) {
	const nobody = 1 << 30 // larger than any pid
	return container.ExecInspect{Pid: nobody, ExitCode: 3}, nil
}

// Output and status are sent in each protocol. Before version 4 the status is plain text.
func TestSessionInEachProtocol(t *testing.T) {
	s := New(Options{}, helloEngine{oneContainer{kind: state.TypeContainer}})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	execURL := func(t *testing.T) string {
		t.Helper()
		answer, err := s.Exec(t.Context(), &runtimeapi.ExecRequest{ContainerId: "known", Cmd: []string{"x"}, Stdout: true, Tty: true})
		if err != nil {
			t.Fatal(err)
		}
		return answer.GetUrl()
	}
	eachTransport(t, func(t *testing.T, over transport) {
		var out bytes.Buffer
		err := over(t, execURL(t)).StreamWithContext(t.Context(), remotecommand.StreamOptions{Stdout: &out, Tty: true})
		if exitCode(err) != 3 || out.String() != "hello" {
			t.Errorf("got %v, %q", err, &out)
		}
	})
	for protocol, want := range map[string]string{"v4.channel.k8s.io": `"reason":"ExitCode","message":"3"`, "channel.k8s.io": "exit status 3"} {
		t.Run(protocol, func(t *testing.T) {
			dialer := &websocket.Dialer{Subprotocols: []string{protocol}}
			conn, answer, err := dialer.Dial("ws"+strings.TrimPrefix(execURL(t), "http"), nil)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			defer answer.Body.Close()
			var channels [5]bytes.Buffer
			for {
				_, message, err := conn.ReadMessage()
				if err != nil {
					break
				}
				channels[message[0]].Write(message[1:])
			}
			if channels[1].String() != "hello" || !strings.Contains(channels[3].String(), want) {
				t.Errorf("got %q and %q", &channels[1], &channels[3])
			}
		})
	}
}

// A client that does not read, and so blocks writes, does not keep the server from closing.
func TestCloseDoesNotWaitForAClientThatReadsNothing(t *testing.T) {
	s := startServer(t, Options{})
	writing := make(chan struct{})
	streamingURL, err := s.url(t.Context(), "exec", session{server: s, want: wanted{stdout: true}, run: func(ctx context.Context, e ends) error {
		go func() {
			close(writing)
			for {
				if _, err := e.stdout.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}()
		<-ctx.Done()
		return context.Cause(ctx)
	}}.serve)
	if err != nil {
		t.Fatal(err)
	}
	dialSession(t, streamingURL, "error", "stdout")
	<-writing
	closed := make(chan error, 1)
	go func() { closed <- s.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("the server does not close")
	}
}

// dialSession connects to a session's URL, upgrades to SPDY and opens streams of the given types.
func dialSession(t *testing.T, streamingURL string, types ...string) net.Conn {
	t.Helper()
	u, err := url.Parse(streamingURL)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, upgradeRequest(u, "v4.channel.k8s.io")); err != nil {
		t.Fatal(err)
	}
	var headers []http.Header
	for _, kind := range types {
		headers = append(headers, http.Header{"Streamtype": {kind}})
	}
	openStreams(t, conn, headers...)
	return conn
}

func TestSurplusStreams(t *testing.T) {
	before := goleak.IgnoreCurrent()
	s := New(Options{}, oneContainer{kind: state.TypeContainer})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, early := range []bool{true, false} {
		begun, end := make(chan struct{}), make(chan struct{})
		streamingURL, err := s.url(t.Context(), "exec", session{server: s, want: wanted{stdout: true}, run: func(_ context.Context, e ends) error {
			close(begun)
			<-end
			_, err := io.WriteString(e.stdout, "the end")
			return err
		}}.serve)
		if err != nil {
			t.Fatal(err)
		}
		surplus := strings.Fields(strings.Repeat("error stdout stdin stderr resize nonsense ", 10))
		types := []string{"error", "stdout"}
		if early {
			types = append([]string{"error", "error", "stdin", "stderr", "resize", "nonsense"}, "stdout")
		}
		client := dialSession(t, streamingURL, append(types, surplus...)...)
		<-begun
		close(end)
		_ = client.SetReadDeadline(time.Now().Add(patience))
		if answer, err := io.ReadAll(client); err != nil || !bytes.Contains(answer, []byte("the end")) {
			t.Errorf("got %q, %v", answer, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	goleak.VerifyNone(t, before)
}

// TestSizesAreBounded uses a client that sends an endless terminal size.
func TestSizesAreBounded(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	go func() {
		_, err := io.WriteString(w, `{"Width":80,"Height":24}{"a":"`)
		for err == nil {
			_, err = io.WriteString(w, strings.Repeat("a", 1<<10))
		}
	}()
	out := sizes(t.Context(), r)
	if size := <-out; size.Width != 80 {
		t.Errorf("got %+v", size)
	}
	select {
	case _, open := <-out:
		if open {
			t.Error("a second size")
		}
	case <-time.After(time.Minute):
		t.Error("it is still read")
	}
}
