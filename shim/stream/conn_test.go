package stream

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// TestSlowClientsAreCutOff opens many connections that send nothing or send a request byte by byte. A legitimate client
// is served meanwhile.
func TestSlowClientsAreCutOff(t *testing.T) {
	s := startServer(t, Options{HeaderTimeout: 300 * time.Millisecond})
	u, err := url.Parse(s.mustExecURL(t))
	if err != nil {
		t.Fatal(err)
	}
	const clients = 50
	ends := make(chan error, clients)
	for i := range clients {
		conn, err := net.Dial("tcp", u.Host)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			defer conn.Close()
			if i%2 == 1 {
				go drip(conn, "GET "+u.Path+" HTTP/1.1\r\nHost: "+u.Host+"\r\nX-Slow: ")
			}
			_ = conn.SetReadDeadline(time.Now().Add(patience))
			_, err := io.Copy(io.Discard, conn)
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() {
				err = nil // closed or reset: cut off
			}
			ends <- err
		}()
	}
	transport := &http.Transport{DisableKeepAlives: true}
	for end := time.Now().Add(patience); ; { // on a busy machine the test itself may be slow
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, u.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := transport.RoundTrip(request)
		if err == nil {
			answer.Body.Close()
			break // it was read and answered
		}
		if time.Now().After(end) {
			t.Fatalf("a good client: %v", err)
		}
	}
	for range clients {
		if err := <-ends; err != nil {
			t.Errorf("a slow client is not cut off: %v", err)
		}
	}
}

// drip sends a beginning and then single bytes until the connection ends.
func drip(conn net.Conn, beginning string) {
	_, err := io.Copy(conn, strings.NewReader(beginning))
	for err == nil {
		time.Sleep(10 * time.Millisecond) // like a slow-loris attack
		_, err = io.WriteString(conn, "x")
	}
}

// pipes is a listener whose connections use no descriptors.
type pipes struct {
	net.Listener
	clients []net.Conn
}

func (l *pipes) Accept() (net.Conn, error) {
	server, client := net.Pipe()
	l.clients = append(l.clients, client)
	return server, nil
}

// TestConnectionsWithoutATokenAreLimited checks that above the limit the oldest connection is closed, whatever its age.
func TestConnectionsWithoutATokenAreLimited(t *testing.T) {
	t.Parallel()
	raw := &pipes{}
	l := &listener{Listener: raw, ctx: t.Context(), conns: map[*conn]struct{}{}}
	defer l.closeAll()
	accept := func() *conn {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		return c.(*conn)
	}
	session := accept()
	l.removePending(session)
	for range maxPending {
		accept()
	}
	if len(l.conns) != maxPending+1 {
		t.Errorf("got %d connections, want all of them", len(l.conns))
	}
	accept()
	if _, err := raw.clients[1].Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the oldest: got %v, want its end", err)
	}
	if session.ctx.Err() != nil || len(l.conns) != maxPending+1 {
		t.Errorf("the session: got %v, with %d connections left", session.ctx.Err(), len(l.conns))
	}
}
