package metricsserver

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestMetricsRefuseWebPages(t *testing.T) {
	loopback, everywhere := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9101}, &net.TCPAddr{IP: net.IPv4zero, Port: 9101}
	for _, c := range []struct {
		listener     net.Addr
		host, origin string
		want         int
	}{
		{loopback, "127.0.0.1:9101", "", 200},
		{loopback, "localhost:9101", "", 200},
		{loopback, "[::1]:9101", "", 200},
		{loopback, "evil.example:9101", "", 403},
		{loopback, "127.0.0.1.evil.example", "", 403},
		{loopback, "10.0.0.1:9101", "", 403},
		{loopback, "localhost:9101", "http://localhost:9102", 403},
		{loopback, "localhost:9101", "https://localhost:9101", 403},
		{loopback, "localhost:9101", "null", 403},
		{everywhere, "node1.example:9101", "", 200},
		{everywhere, "node1.example:9101", "http://evil.example:9101", 403},
	} {
		h := guard(c.listener, writeTime, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil)
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%v, host %q, origin %q: got %d, want %d", c.listener, c.host, c.origin, w.Code, c.want)
		}
	}
}

func TestMetricsRefuseHugeHeaders(t *testing.T) {
	m := New("127.0.0.1:0", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	address, err := m.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	}()
	// On a reused connection the library accepts another 4 KiB.
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for header, want := range map[string]int{"short": 200, strings.Repeat("x", 10<<10): 200, strings.Repeat("y", 16<<10): 431} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", address), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", header)
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a header of %d bytes: got %d, want %d", len(header), resp.StatusCode, want)
		}
	}
}

// TestMetricsCutSlowClientsOff uses clients that send their request byte by byte, send nothing, or read nothing. Other
// clients must be served in the meantime.
func TestMetricsCutSlowClientsOff(t *testing.T) {
	m := New("127.0.0.1:0", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	m.server.ReadHeaderTimeout, m.server.ReadTimeout, m.server.IdleTimeout = 200*time.Millisecond, 200*time.Millisecond, 200*time.Millisecond
	address, err := m.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for name, send := range map[string]func(net.Conn){
		"says nothing": func(net.Conn) {},
		"sends drops": func(c net.Conn) {
			_, err := c.Write([]byte("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "))
			for err == nil {
				time.Sleep(10 * time.Millisecond) // like a slow-loris attack
				_, err = c.Write([]byte("x"))
			}
		},
	} {
		conn, err := net.Dial("tcp", address.String())
		if err != nil {
			t.Fatal(err)
		}
		sent := make(chan struct{})
		go func() {
			defer close(sent)
			send(conn)
		}()
		for end := time.Now().Add(time.Minute); ; { // on a busy machine the test itself may be slow
			resp, err := client.Get("http://" + address.String() + "/metrics")
			if err == nil {
				resp.Body.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatalf("beside one that %s: %v", name, err)
			}
		}
		endsSoon(t, name, conn)
		conn.Close()
		<-sent
	}
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
}

// endsSoon waits for the peer to close a connection.
func endsSoon(t *testing.T, name string, conn net.Conn) {
	t.Helper()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	for buf := make([]byte, 4096); ; {
		_, err := conn.Read(buf)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Errorf("one that %s is not cut off", name)
		}
		if err != nil {
			return
		}
	}
}

// TestMetricsEndForSlowReaders checks that an unread response is abandoned.
func TestMetricsEndForSlowReaders(t *testing.T) {
	ended := make(chan error, 1)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: guard(l.Addr(), 200*time.Millisecond, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var err error
		for block := make([]byte, 1<<20); err == nil; {
			_, err = w.Write(block)
		}
		ended <- err
	}))}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Error("the answer is still being written")
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	<-served
}
