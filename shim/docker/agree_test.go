package docker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/docker/docker/api/types/container"
)

// engine answers pings, and lists under the version that it told.
func engine(t *testing.T) (host string, pings *atomic.Int32) {
	t.Helper()
	pings = &atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			pings.Add(1)
			w.Header().Set("Api-Version", "1.41")
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/v1.41/") {
			http.Error(w, `{"message":"not negotiated: `+r.URL.Path+`"}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("[]"))
	}))
	t.Cleanup(s.Close)
	return "tcp://" + s.Listener.Addr().String(), pings
}

// First calls at once, some of them given up, agree on the version once. The
// race detector found the library's own negotiation wanting.
func TestFirstCallsAtOnceNegotiateOnce(t *testing.T) {
	host, pings := engine(t)
	c, err := New(Options{Host: host})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			ctx := t.Context()
			if i%2 == 1 {
				ctx = gone
			}
			if _, err := c.ContainerList(ctx, container.ListOptions{}); (err == nil) != (i%2 == 0) {
				t.Errorf("call %d: got %v", i, err)
			}
		})
	}
	wg.Wait()
	if pings.Load() != 1 {
		t.Errorf("got %d pings, want one", pings.Load())
	}
}
