package stream

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	spdyframe "github.com/moby/spdystream/spdy"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"

	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/shim/state"
)

// These tests use malicious clients with or without a token.

// endless returns the URL of a session that reads no input and ends with its client.
func (s *Server) endless(t *testing.T, want wanted) string {
	t.Helper()
	u, err := s.url(t.Context(), "exec", session{server: s, want: want, run: func(ctx context.Context, _ ends) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}}.serve)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// closed waits until the server has closed a connection.
func closed(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the connection stays")
	}
}

func (s *Server) connections() int {
	s.listener.mu.Lock()
	defer s.listener.mu.Unlock()
	return len(s.listener.conns)
}

func readReplies(t *testing.T, conn net.Conn, streams int) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var got []byte
	for reply := []byte{0x80, 3, 0, 2}; bytes.Count(got, reply) < streams; {
		piece := make([]byte, 4<<10)
		n, err := conn.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, piece[:n]...)
	}
}

// The server accepts only a few frames of data that no process reads.
func TestLargeFramesAreNotHeld(t *testing.T) {
	s := startServer(t, Options{})
	for _, kind := range []string{"stdin", "stdout", "error"} {
		conn := dialSession(t, s.endless(t, wanted{stdin: true, stdout: true}), "error", "stdin", "stdout")
		readReplies(t, conn, 3)
		const length = 1<<24 - 1
		frame := make([]byte, 8+length)
		binary.BigEndian.PutUint32(frame, map[string]uint32{"error": 1, "stdin": 3, "stdout": 5}[kind])
		binary.BigEndian.PutUint32(frame[4:], length)
		taken := 0
		for taken < 20*length {
			_ = conn.SetWriteDeadline(time.Now().Add(time.Second)) // then its buffers count as full
			n, err := conn.Write(frame)
			taken += n
			if err != nil {
				break
			}
		}
		if taken > 2*length {
			t.Errorf("%s: %d MiB are taken", kind, taken>>20)
		}
		conn.Close()
	}
}

func TestFramesThatEndTheConnection(t *testing.T) {
	s := startServer(t, Options{})
	open := func(id uint32, headers int) []byte {
		var b bytes.Buffer
		framer, err := spdyframe.NewFramer(&b, nil)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		for i := range headers {
			h.Set(fmt.Sprint("streamtype", i), strings.Repeat("x", 1<<20))
		}
		if err := framer.WriteFrame(&spdyframe.SynStreamFrame{StreamId: spdyframe.StreamId(id), Headers: h}); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	control := func(kind byte, length int) []byte {
		return append([]byte{0x80, 3, 0, kind, 0, byte(length >> 16), byte(length >> 8), byte(length)}, make([]byte, length)...)
	}
	for name, frame := range map[string][]byte{
		"a stream id twice":      append(open(1, 0), open(1, 0)...),
		"a smaller stream id":    append(open(9, 0), open(7, 0)...),
		"a stream id of 32 bits": open(1<<31+1, 0),
		"headers of 2 MiB":       open(1, 2),
		"a huge control frame":   control(1, 1<<20),
		"settings":               control(4, 4),
		"headers of a stream":    control(8, 4),
		"a reset without a body": append(control(3, 0), open(1, 0)...),
		"a long ping":            control(6, 100),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := dialSession(t, s.endless(t, wanted{stdout: true}))
			if _, err := conn.Write(frame); err != nil {
				t.Fatal(err)
			}
			closed(t, conn)
		})
	}
}

// A client that reads nothing is disconnected if it has closed its end or the session is idle.
func TestClientsThatReadNothingAreCutOff(t *testing.T) {
	for name, tt := range map[string]struct {
		options Options
		leave   func(*net.TCPConn) error
	}{
		"half closed": {Options{}, (*net.TCPConn).CloseWrite},
		"idle":        {Options{IdleTimeout: 100 * time.Millisecond}, nil},
		"a goodbye": {Options{}, func(c *net.TCPConn) error {
			_, err := c.Write([]byte{0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0})
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := startServer(t, tt.options)
			u, err := s.url(t.Context(), "exec", session{server: s, want: wanted{stdout: true}, run: func(_ context.Context, e ends) error {
				for {
					if _, err := e.stdout.Write(make([]byte, 15<<20)); err != nil { // more than the kernel buffers
						return err
					}
				}
			}}.serve)
			if err != nil {
				t.Fatal(err)
			}
			conn := dialSession(t, u, "error", "stdout").(*net.TCPConn)
			if tt.leave != nil {
				readReplies(t, conn, 2)
				_, err := conn.Read(make([]byte, 8))
				if err := errors.Join(err, tt.leave(conn)); err != nil {
					t.Fatal(err)
				}
			}
			test.Until(t, "the end of the connection", func() bool { return s.connections() == 0 })
		})
	}
}

// An idle session ends. A connected client receives the reason.
func TestIdleSessionsEnd(t *testing.T) {
	for idle := 100 * time.Millisecond; ; idle *= 4 {
		s := startServer(t, Options{IdleTimeout: idle})
		conn := dialSession(t, s.endless(t, wanted{stdout: true}), "error", "stdout")
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		answer, err := io.ReadAll(conn)
		if bytes.Contains(answer, []byte(errIdle.Error())) {
			return
		}
		if idle > patience {
			t.Fatalf("got %q, %v", answer, err)
		}
	}
}

// forward connects to a port-forward and opens streams.
func (s *Server) forward(t *testing.T, headers ...http.Header) net.Conn {
	t.Helper()
	answer, err := s.PortForward(t.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: "known"})
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(answer.GetUrl())
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", u.Host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, upgradeRequest(u, portforward.ProtocolV1Name)); err != nil {
		t.Fatal(err)
	}
	openStreams(t, conn, headers...)
	return conn
}

// A port-forward client has a limited number of connections. Incomplete ones are discarded when it leaves.
func TestForwardedConnectionsAreLimited(t *testing.T) {
	s := New(Options{}, oneContainer{kind: state.TypeSandbox})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	headers := make([]http.Header, maxForwarded+1)
	for i := range headers {
		headers[i] = http.Header{portforward.PortForwardRequestIDHeader: {fmt.Sprint(i)}, portforward.StreamType: {portforward.StreamTypeError}}
	}
	conn := s.forward(t, headers...)
	_ = conn.SetReadDeadline(time.Now().Add(patience))
	var got []byte
	for reset := []byte{0x80, 3, 0, 3}; !bytes.Contains(got, reset); {
		piece := make([]byte, 4<<10)
		n, err := conn.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, piece[:n]...)
	}
	conn.Close()
	test.Until(t, "the end of the connection", func() bool { return s.connections() == 0 })
}

// The number of concurrent dials into unresponsive pods is limited.
func TestDialsAreLimited(t *testing.T) {
	var dialing, most atomic.Int32
	o := Options{PodIPs: func(ctx context.Context, _ string) ([]string, error) {
		now := dialing.Add(1)
		defer dialing.Add(-1)
		for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
		}
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}}
	s := New(o, oneContainer{kind: state.TypeSandbox})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	const pairs = 2 * maxClientDials
	headers := make([]http.Header, 0, 2*pairs)
	for i := range pairs {
		for _, kind := range []string{portforward.StreamTypeError, portforward.StreamTypeData} {
			headers = append(headers, http.Header{portforward.PortHeader: {"80"}, portforward.PortForwardRequestIDHeader: {fmt.Sprint(i)}, portforward.StreamType: {kind}})
		}
	}
	conn := s.forward(t, headers...)
	readReplies(t, conn, 2*pairs)
	test.Until(t, "as many as are allowed", func() bool { return dialing.Load() == maxClientDials })
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if most.Load() > maxClientDials || dialing.Load() != 0 {
		t.Errorf("got %d at the same time, and %d are left", most.Load(), dialing.Load())
	}
}

// The server does not wait for the body of a request without a token.
func TestSlowBodiesAreCutOff(t *testing.T) {
	s := startServer(t, Options{HeaderTimeout: 300 * time.Millisecond})
	for _, line := range []string{"POST /exec/none", "PUT /", "POST " + strings.TrimPrefix(s.mustExecURL(t), s.base.String())} {
		conn, err := net.Dial("tcp", s.base.Host)
		if err != nil {
			t.Fatal(err)
		}
		go drip(conn, line+" HTTP/1.1\r\nHost: "+s.base.Host+"\r\nContent-Length: 100000\r\n\r\n")
		closed(t, conn)
		conn.Close()
	}
}

// mapped connects an IPv6 socket to an IPv4 address.
func mapped(t *testing.T, to *net.TCPAddr) net.Conn {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		test.Missing(t, "IPv6: %v", err)
	}
	file := os.NewFile(uintptr(fd), "socket")
	defer file.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet6{Port: to.Port, Addr: [16]byte(to.IP.To16())}); err != nil {
		t.Fatal(err)
	}
	conn, err := net.FileConn(file)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// The socket of a client is found in either family.
func TestPeerLeft(t *testing.T) {
	for name, dial := range map[string]func(*testing.T, *net.TCPAddr) net.Conn{
		"IPv4 in a socket of IPv6": mapped,
		"same family": func(t *testing.T, to *net.TCPAddr) net.Conn {
			t.Helper()
			conn, err := net.DialTCP("tcp", nil, to)
			if err != nil {
				t.Fatal(err)
			}
			return conn
		},
	} {
		for _, address := range []string{"127.0.0.1:0", ":0", "[::1]:0"} {
			t.Run(name+" to "+address, func(t *testing.T) {
				l, err := net.Listen("tcp", address)
				if err != nil {
					test.Missing(t, "address %s: %v", address, err)
				}
				defer l.Close()
				to := l.Addr().(*net.TCPAddr)
				if to.IP.IsUnspecified() {
					to.IP = net.IPv4(127, 0, 0, 1)
				}
				client := dial(t, to)
				defer client.Close()
				raw, err := l.Accept()
				if err != nil {
					t.Fatal(err)
				}
				defer raw.Close()
				if _, err := client.Write([]byte("unread")); err != nil {
					t.Fatal(err)
				}
				if peerLeft(raw.(*net.TCPConn)) {
					t.Error("it has left")
				}
				client.Close()
				if !peerLeft(raw.(*net.TCPConn)) {
					t.Error("it has not left")
				}
			})
		}
	}
}
