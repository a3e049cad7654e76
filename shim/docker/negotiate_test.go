package docker

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// upgradable is an engine that only answers lists of the version in its last ping.
type upgradable struct {
	host  string
	pings atomic.Int32
	api   atomic.Value
}

func newUpgradable(t *testing.T) *upgradable {
	t.Helper()
	e := &upgradable{}
	e.api.Store("1.41")
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		api := e.api.Load().(string)
		if strings.HasSuffix(r.URL.Path, "/_ping") {
			e.pings.Add(1)
			w.Header().Set("Api-Version", api)
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/v"+api+"/") {
			http.Error(w, `{"message":"not negotiated: `+r.URL.Path+`"}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("[]"))
	}))
	t.Cleanup(s.Close)
	e.host = "tcp://" + s.Listener.Addr().String()
	return e
}

// Concurrent first calls, some of them cancelled, negotiate the version once. The library's own negotiation has a data
// race.
func TestFirstCallsAtOnceNegotiateOnce(t *testing.T) {
	e := newUpgradable(t)
	c, err := New(Options{Host: e.host})
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
	if e.pings.Load() != 1 {
		t.Errorf("got %d pings, want one", e.pings.Load())
	}
}

// After an upgrade or downgrade of the engine, a ping switches later requests to its version, also during other calls.
func TestEveryPingAgreesOnTheVersion(t *testing.T) {
	e := newUpgradable(t)
	c, err := New(Options{Endpoint: &Endpoint{Host: e.host, APIVersion: "1.41"}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	list := func() error {
		_, err := c.ContainerList(t.Context(), container.ListOptions{})
		return err
	}
	for _, api := range []string{"1.41", "1.45", "1.40", "1.51"} {
		e.api.Store(api)
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() { _ = list() }) // in either version
		}
		if _, err := c.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		calls.Wait()
		if err := list(); err != nil || c.ClientVersion() != api {
			t.Errorf("got %v in %s, want calls in %s", err, c.ClientVersion(), api)
		}
	}
	e.api.Store("1.99")
	if _, err := c.Ping(t.Context()); err != nil || c.ClientVersion() != "1.51" {
		t.Errorf("got %v, %s, want the newest that crishim knows", err, c.ClientVersion())
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Ping(gone); err == nil || c.ClientVersion() != "1.51" {
		t.Errorf("got %v, %s after an attempt that failed", err, c.ClientVersion())
	}
}

// An engine that is too old is refused at the first call, and if it replaces a newer engine.
func TestEnginesThatAreTooOldAreRefused(t *testing.T) {
	e := newUpgradable(t)
	e.api.Store("1.39")
	if _, err := New(Options{Endpoint: &Endpoint{Host: e.host, APIVersion: "1.39"}}); !errdefs.IsFailedPrecondition(err) || !strings.Contains(err.Error(), "speaks API 1.39, crishim needs 1.40") {
		t.Errorf("a version that is known: got %v", err)
	}
	c, err := New(Options{Host: e.host})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.ContainerList(t.Context(), container.ListOptions{}); !errdefs.IsFailedPrecondition(err) || IsUnreachable(err) || !strings.HasPrefix(Text(err), "the docker engine speaks API 1.39, crishim needs 1.40") {
		t.Errorf("the first call: got %v", err)
	}
	e.api.Store("1.41")
	if _, err := c.ContainerList(t.Context(), container.ListOptions{}); err != nil {
		t.Errorf("after an upgrade: %v", err)
	}
	e.api.Store("1.39")
	if _, err := c.Ping(t.Context()); !errdefs.IsFailedPrecondition(err) {
		t.Errorf("put back: got %v", err)
	}
}
