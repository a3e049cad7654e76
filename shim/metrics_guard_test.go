package shim

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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
		{loopback, "localhost:9101", "http://localhost:9101", 403},
		{loopback, "localhost:9101", "null", 403},
		{everywhere, "node1.example:9101", "", 200},
		{everywhere, "node1.example:9101", "http://node1.example:9101", 403},
	} {
		h := guardMetrics(c.listener, http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
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
	m := newMetrics("127.0.0.1:0")
	address, err := m.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		http.DefaultClient.CloseIdleConnections()
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	}()
	for header, want := range map[string]int{"short": 200, strings.Repeat("x", 64<<10): 431} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/metrics", address), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", header)
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("a header of %d bytes: got %d, want %d", len(header), resp.StatusCode, want)
		}
	}
}
