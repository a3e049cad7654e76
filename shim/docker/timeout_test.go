package docker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// silentEngine agrees on a version and answers nothing else, but logs and stops
// after a while.
func silentEngine(t *testing.T, slow time.Duration) string {
	t.Helper()
	over := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		wait := (<-chan time.Time)(nil)
		switch {
		case strings.HasSuffix(r.URL.Path, "/_ping"):
			return
		case strings.HasSuffix(r.URL.Path, "/stop"), strings.HasSuffix(r.URL.Path, "/logs"):
			wait = time.After(slow)
		case strings.HasSuffix(r.URL.Path, "/none/json"):
			http.Error(w, `{"message":"No such container: none"}`, http.StatusNotFound)
			return
		}
		select {
		case <-wait:
		case <-r.Context().Done():
		case <-over:
		}
	}))
	t.Cleanup(s.Close)
	t.Cleanup(func() { close(over) })
	return "tcp://" + s.Listener.Addr().String()
}

func TestRequestsHaveALimit(t *testing.T) {
	t.Parallel()
	const limit = 200 * time.Millisecond
	timeouts := map[string]bool{}
	host := silentEngine(t, 3*limit)
	c, err := New(Options{Host: host, RequestTimeout: limit, Observe: func(operation string, _ time.Duration, err error) {
		timeouts[operation] = Timeout(err)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, infoErr := c.Info(t.Context())
	_, listErr := c.ContainerList(t.Context(), container.ListOptions{})
	for operation, err := range map[string]error{
		"info": infoErr, "list_containers": listErr, "start_container": c.ContainerStart(t.Context(), "x", container.StartOptions{}), "": c.ContainerKill(t.Context(), "x", "KILL"),
	} {
		if !errors.Is(err, context.DeadlineExceeded) || err.Error() != "the docker engine has not answered for 200ms: context deadline exceeded" || timeouts[operation] != (operation != "") {
			t.Errorf("%s: got %v, counted %v", operation, err, timeouts)
		}
	}
	// What the client gave up is its own affair.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Info(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: got %v", err)
	}
	// A stop has its grace on top, and what streams has no limit.
	grace, none := 60, -1
	for _, g := range []*int{nil, &grace, &none} {
		if err := c.ContainerStop(t.Context(), "none", container.StopOptions{Timeout: g}); err != nil {
			t.Errorf("stop: %v", err)
		}
	}
	logs, err := c.ContainerLogs(t.Context(), "x", container.LogsOptions{ShowStdout: true})
	if err != nil {
		t.Fatalf("logs: %v", err)
	}
	logs.Close()
	at := 0
	if err := c.ContainerStop(t.Context(), "none", container.StopOptions{Timeout: &at}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a stop without grace: got %v", err)
	}
}
