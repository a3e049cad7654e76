package docker

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/google/go-cmp/cmp"
)

// Each call is counted under its name in dockershim's metrics and uses the negotiated version, not the library's.
func TestCallsAreCountedByTheirNames(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var asked, counted []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		if r.URL.Path == "/_ping" {
			return
		}
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		mu.Unlock()
		if r.Header.Get("Upgrade") == "tcp" {
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", "tcp")
			w.WriteHeader(http.StatusSwitchingProtocols)
			return
		}
		http.Error(w, "no", http.StatusTeapot)
	}))
	defer s.Close()
	c, err := New(Options{Host: "tcp://" + s.Listener.Addr().String(), RequestTimeout: time.Minute, Observe: func(operation string, _ time.Duration, err error) {
		if (err == nil) != (operation == "attach" || operation == "start_exec") {
			t.Errorf("%s: counted %v", operation, err)
		}
		counted = append(counted, operation)
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	for _, call := range []struct {
		do        func()
		ask, name string
	}{
		{func() { _, _ = c.ServerVersion(ctx) }, "GET version", "version"},
		{func() { _, _ = c.Info(ctx) }, "GET info", "info"},
		{func() { _, _ = c.ContainerList(ctx, container.ListOptions{}) }, "GET containers/json", "list_containers"},
		{func() { _, _ = c.ContainerInspect(ctx, "x") }, "GET containers/x/json", "inspect_container"},
		{func() { _, _ = c.ContainerCreate(ctx, &container.Config{}, nil, nil, nil, "x") }, "POST containers/create", "create_container"},
		{func() { _ = c.ContainerStart(ctx, "x", container.StartOptions{}) }, "POST containers/x/start", "start_container"},
		{func() { _ = c.ContainerStop(ctx, "x", container.StopOptions{}) }, "POST containers/x/stop", "stop_container"},
		{func() { _ = c.ContainerRemove(ctx, "x", container.RemoveOptions{}) }, "DELETE containers/x", "remove_container"},
		{func() { _, _ = c.ContainerUpdate(ctx, "x", container.UpdateConfig{}) }, "POST containers/x/update", "update_container"},
		{func() { _, _ = c.ContainerLogs(ctx, "x", container.LogsOptions{}) }, "GET containers/x/logs", "logs"},
		{func() { _, _ = c.ContainerAttach(ctx, "x", container.AttachOptions{}) }, "POST containers/x/attach", "attach"},
		{func() { _, _ = c.ContainerExecCreate(ctx, "x", container.ExecOptions{}) }, "POST containers/x/exec", "create_exec"},
		{func() { _, _ = c.ContainerExecAttach(ctx, "x", container.ExecAttachOptions{}) }, "POST exec/x/start", "start_exec"},
		{func() { _, _ = c.ContainerExecInspect(ctx, "x") }, "GET exec/x/json", "inspect_exec"},
		{func() { _ = c.ContainerKill(ctx, "x", "KILL") }, "POST containers/x/kill", ""},
		{func() { _, _ = c.ImageList(ctx, image.ListOptions{}) }, "GET images/json", "list_images"},
		{func() { _, _ = c.ImageInspect(ctx, "reg:5000/a/json") }, "GET images/reg:5000/a/json/json", "inspect_image"},
		{func() { _, _ = c.ImageHistory(ctx, "a/b") }, "GET images/a/b/history", "image_history"},
		{func() { _, _ = c.ImagePull(ctx, "a/b", image.PullOptions{}) }, "POST images/create", "pull_image"},
		{func() { _, _ = c.ImageRemove(ctx, "a/b/c", image.RemoveOptions{}) }, "DELETE images/a/b/c", "remove_image"},
		{func() { _, _ = c.ImageLoad(ctx, strings.NewReader("")) }, "POST images/load", ""},
	} {
		asked, counted = nil, nil
		call.do()
		method, path, _ := strings.Cut(call.ask, " ")
		if diff := cmp.Diff([]string{method + " /v1.41/" + path}, asked); diff != "" {
			t.Errorf("%s: got + instead of -:\n%s", call.ask, diff)
		}
		if want := slices.DeleteFunc([]string{call.name}, func(name string) bool { return name == "" }); !slices.Equal(counted, want) {
			t.Errorf("%s: counted as %q, want %q", call.ask, counted, want)
		}
	}
}

// silentEngine negotiates a version and answers only logs and stops, after a delay.
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
		case strings.HasSuffix(r.URL.Path, "/images/json"):
			_, _ = w.Write([]byte(`[{"Id":"sha256:00"},`))
			w.(http.Flusher).Flush()
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
	_, halfErr := c.ImageList(t.Context(), image.ListOptions{})
	for operation, err := range map[string]error{
		"info": infoErr, "list_containers": listErr, "list_images": halfErr, "start_container": c.ContainerStart(t.Context(), "x", container.StartOptions{}), "": c.ContainerKill(t.Context(), "x", "KILL"),
	} {
		if !errors.Is(err, context.DeadlineExceeded) || Text(err) != "the docker engine has not answered for 200ms: context deadline exceeded" || timeouts[operation] != (operation != "") {
			t.Errorf("%s: got %v, counted %v", operation, err, timeouts)
		}
	}
	// Cancellation by the client is not an error of the engine.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Info(gone); !errors.Is(err, context.Canceled) {
		t.Errorf("a client that has gone: got %v", err)
	}
	// A stop has its grace period in addition, and streams have no limit.
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
