package stream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crishim/crishim/internal/test"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

const (
	echoPort   = 80 // answers after it has received everything
	refusePort = 81
)

// pod serves forwarded connections with a different service per port.
func pod(t *testing.T) *container {
	t.Helper()
	c := &container{}
	c.forward = func(_ context.Context, port int32, stream io.ReadWriteCloser) error {
		if port == refusePort {
			return errors.New("connection refused")
		}
		heard, err := io.ReadAll(stream)
		if err != nil {
			return err
		}
		_, err = stream.Write(append([]byte("heard "), heard...))
		return err
	}
	return c.start(t)
}

type forwarding struct {
	t      *testing.T
	cancel context.CancelFunc
	ready  chan net.Addr
	failed chan error
	done   chan error
}

func startForward(t *testing.T, url func(context.Context) (string, error), o Options, ports ...string) *forwarding {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	f := &forwarding{t: t, cancel: cancel, ready: make(chan net.Addr, 10), failed: make(chan error, 1000), done: make(chan error, 1)}
	o.Ready = func(local net.Addr, _ uint16) { f.ready <- local }
	o.Failed = func(_ Port, err error) { f.failed <- err }
	go func() { f.done <- Forward(ctx, url, parsePorts(t, ports), o) }()
	t.Cleanup(func() {
		cancel()
		if err := f.end(); err != nil {
			t.Errorf("forwarding ended with %v", err)
		}
	})
	return f
}

func parsePorts(t *testing.T, texts []string) []Port {
	t.Helper()
	var ports []Port
	for _, text := range texts {
		p, err := ParsePort(text)
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, p)
	}
	return ports
}

// end waits for Forward to return. It may be called repeatedly.
func (f *forwarding) end() error {
	f.t.Helper()
	select {
	case err := <-f.done:
		f.done <- nil
		return err
	case <-time.After(patience):
		f.t.Fatal("forwarding did not end")
		return nil
	}
}

// address waits for the next listening address.
func (f *forwarding) address() string {
	f.t.Helper()
	select {
	case a := <-f.ready:
		return a.String()
	case err := <-f.done:
		f.t.Fatalf("forwarding ended: %v", err)
	case <-time.After(patience):
		f.t.Fatal("nothing was forwarded")
	}
	return ""
}

// ask sends a message and a half-close and returns the answer.
func ask(address, message string) (string, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, message); err != nil {
		return "", err
	}
	_ = conn.(*net.TCPConn).CloseWrite() // the other side may have finished
	answer, err := io.ReadAll(conn)
	return string(answer), err
}

func wantAnswer(t *testing.T, address string) {
	t.Helper()
	if got, err := ask(address, "you"); err != nil || got != "heard you" {
		t.Errorf("%s: got %q, %v", address, got, err)
	}
}

func TestForwardBothFamilies(t *testing.T) {
	f := startForward(t, pod(t).forwardURL, Options{}, ":80")
	first := f.address()
	wantAnswer(t, first)
	_, port, _ := net.SplitHostPort(first)
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("no IPv6 loopback here")
	} else {
		l.Close()
	}
	second := f.address()
	if want := net.JoinHostPort("::1", port); second != want {
		t.Errorf("got %s, want %s", second, want)
	}
	wantAnswer(t, second)
}

// 0.0.0.0 does not include IPv6, and :: does not include IPv4.
func TestForwardOnAllAddressesOfAFamily(t *testing.T) {
	if l, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skip("no IPv6 loopback here")
	} else {
		l.Close()
	}
	f := startForward(t, pod(t).forwardURL, Options{}, "0.0.0.0::80", "[::]::80")
	first, second := f.address(), f.address()
	_, port4, _ := net.SplitHostPort(first)
	_, port6, _ := net.SplitHostPort(second)
	if first != net.JoinHostPort("0.0.0.0", port4) || second != net.JoinHostPort("::", port6) {
		t.Errorf("got %s and %s", first, second)
	}
	wantAnswer(t, net.JoinHostPort("127.0.0.1", port4))
	wantAnswer(t, net.JoinHostPort("::1", port6))
}

// A connection that fails at once may be reset before its stream is confirmed.
func TestForwardResetBeforeTheReply(t *testing.T) {
	ended := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(httpstream.HeaderProtocolVersion, forwardProtocol)
		var errs httpstream.Stream
		conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
			if s.Headers().Get("streamType") == "error" {
				errs = s
				return nil
			}
			fmt.Fprint(errs, "error forwarding port 81 to pod x, uid : connection refused")
			_ = errs.Close()
			return errors.New("reset it")
		})
		defer conn.Close()
		<-ended
	}))
	t.Cleanup(func() { close(ended); server.Close() })
	f := startForward(t, func(context.Context) (string, error) { return server.URL, nil }, Options{}, "127.0.0.1::81")
	bad := f.address()
	for range 3 {
		_, _ = ask(bad, "you")
		select {
		case err := <-f.failed:
			var said *RemoteError
			if !errors.As(err, &said) || said.Message != "connection refused" {
				t.Errorf("got %v, want what the server said", err)
			}
		case <-time.After(patience):
			t.Fatal("no failure was reported")
		}
	}
}

func TestForwardRefused(t *testing.T) {
	f := startForward(t, pod(t).forwardURL, Options{}, "127.0.0.1::80", "127.0.0.1::81")
	good, bad := f.address(), f.address()
	if answer, err := ask(bad, "you"); err == nil && answer != "" {
		t.Errorf("got %q from a port that refuses", answer)
	}
	select {
	case err := <-f.failed:
		if !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("got %v", err)
		}
	case <-time.After(patience):
		t.Error("nobody was told")
	}
	wantAnswer(t, good)
	select {
	case err := <-f.failed:
		t.Errorf("told twice: %v", err)
	default:
	}
}

func TestForwardReconnects(t *testing.T) {
	c := pod(t)
	network, front := test.ProxyURL(t, c.http.URL)
	var urls atomic.Int32
	f := startForward(t, func(ctx context.Context) (string, error) {
		urls.Add(1)
		u, err := c.forwardURL(ctx)
		return strings.Replace(u, c.http.URL, front, 1), err
	}, Options{}, "127.0.0.1::80")
	address := f.address()
	wantAnswer(t, address)
	network.Cut()
	// The client may notice the break only on the next connection.
	test.Until(t, "an answer through a new tunnel", func() bool {
		answer, err := ask(address, "you")
		return err == nil && answer == "heard you"
	})
	if urls.Load() < 2 {
		t.Error("the broken tunnel was used again")
	}
}

func TestForwardEndsWithPod(t *testing.T) {
	var alive atomic.Bool
	alive.Store(true)
	ctx := t.Context()
	o := Options{
		Alive: func(context.Context) (bool, error) { return alive.Load(), nil },
		Ready: func(net.Addr, uint16) { alive.Store(false) },
	}
	c := pod(t)
	err := within(t, "forward", func() error { return Forward(ctx, c.forwardURL, []Port{{Address: "127.0.0.1", Remote: 80}}, o) })
	if !errors.Is(err, errPodEnded) {
		t.Errorf("got %v, want %v", err, errPodEnded)
	}
}

func TestForwardTakenPort(t *testing.T) {
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		t.Run(address, func(t *testing.T) {
			l, err := net.Listen("tcp", address+":0")
			if err != nil {
				t.Skipf("no IPv6 loopback here: %v", err)
			}
			defer l.Close()
			port := l.Addr().(*net.TCPAddr).Port
			url := func(context.Context) (string, error) { return "", errors.New("asked for a URL") }
			err = Forward(t.Context(), url, []Port{{Local: uint16(port), Remote: 80}}, Options{})
			want := fmt.Sprintf("local port %s is taken", net.JoinHostPort(strings.Trim(address, "[]"), strconv.Itoa(port)))
			if err == nil || !strings.HasPrefix(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

func TestForwardManyAtOnce(t *testing.T) {
	f := startForward(t, pod(t).forwardURL, Options{}, "127.0.0.1::80")
	address := f.address()
	var running sync.WaitGroup
	for i := range 200 {
		running.Go(func() {
			message := strings.Repeat(strconv.Itoa(i)+" ", 5000)
			if got, err := ask(address, message); err != nil || got != "heard "+message {
				t.Errorf("connection %d: got %d bytes, %v", i, len(got), err)
			}
		})
	}
	running.Wait()
}

func TestForwardManyInARow(t *testing.T) {
	connections := 500
	if os.Getenv("CRISHIM_TEST_LONG") != "" {
		connections = 5000
	}
	var urls atomic.Int32
	c := pod(t)
	f := startForward(t, func(ctx context.Context) (string, error) { urls.Add(1); return c.forwardURL(ctx) }, Options{}, "127.0.0.1::80")
	address := f.address()
	for i := range connections {
		if got, err := ask(address, "you"); err != nil || got != "heard you" {
			t.Fatalf("connection %d: got %q, %v", i, got, err)
		}
	}
	if int(urls.Load()) > connections/10 { // a tunnel is dropped now and then if its server seems to have missed input
		t.Errorf("it took %d tunnels", urls.Load())
	}
}

// A client that does not read must not block the others, even if it receives much data.
func TestForwardSlowReader(t *testing.T) {
	flood := make(chan struct{})
	c := &container{forward: func(_ context.Context, port int32, stream io.ReadWriteCloser) error {
		if port == echoPort {
			heard, err := io.ReadAll(stream)
			if err != nil {
				return err
			}
			_, err = stream.Write(append([]byte("heard "), heard...))
			return err
		}
		defer close(flood)
		for range 1000 {
			if _, err := stream.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				return nil
			}
		}
		return nil
	}}
	c.start(t)
	f := startForward(t, c.forwardURL, Options{}, "127.0.0.1::80", "127.0.0.1::9")
	good, slow := f.address(), f.address()
	conn, err := net.Dial("tcp", slow)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	for range 50 {
		wantAnswer(t, good)
	}
	n, err := io.Copy(io.Discard, conn)
	if err != nil || n != 1000*64<<10-1 {
		t.Errorf("got %d bytes, %v", n, err)
	}
	<-flood
}

// Unread input blocks the tunnel of its connection. Other connections get other tunnels.
func TestForwardUnreadInput(t *testing.T) {
	unread := make(chan io.Reader, 100)
	c := &container{forward: func(_ context.Context, _ int32, stream io.ReadWriteCloser) error {
		unread <- stream
		_, err := stream.Write([]byte("heard you"))
		return err
	}}
	c.start(t)
	t.Cleanup(func() { // the server's library never stops waiting for these
		close(unread)
		for r := range unread {
			_, _ = io.Copy(io.Discard, r)
		}
	})
	f := startForward(t, c.forwardURL, Options{}, "127.0.0.1::80")
	address := f.address()
	for range 8 {
		wantAnswer(t, address)
	}
}
