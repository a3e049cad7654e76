package metrics

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestMetricsKeepTheOldNames(t *testing.T) {
	m := New("127.0.0.1:0", slog.New(slog.DiscardHandler))
	address, err := m.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.Observe("list_containers", time.Second, nil)
	m.Observe("list_containers", time.Second, errors.New("x"))
	m.Observe("stop_container", time.Second, context.DeadlineExceeded)
	resp, err := http.Get("http://" + address.String() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		`kubelet_docker_operations_total{operation_type="list_containers"} 2`,
		`kubelet_docker_operations_errors_total{operation_type="list_containers"} 1`,
		`kubelet_docker_operations_timeout_total{operation_type="stop_container"} 1`,
		`kubelet_docker_operations_duration_seconds_count{operation_type="list_containers"} 2`,
		"go_goroutines ",
	} {
		if !strings.Contains(string(body), line) {
			t.Errorf("no %s in the metrics", line)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
}

// TestMetricsHaveNoProfiles checks that profiles are not served, because metrics may be public.
func TestMetricsHaveNoProfiles(t *testing.T) {
	m := New("127.0.0.1:0", slog.New(slog.DiscardHandler))
	address, err := m.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/debug/pprof/", "/debug/pprof/heap", "/debug/pprof/cmdline"} {
		resp, err := http.Get("http://" + address.String() + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: got status %d", path, resp.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := m.Stop(); err != nil {
		t.Error(err)
	}
}

func TestMetricsOnATakenPort(t *testing.T) {
	first := New("127.0.0.1:0", slog.New(slog.DiscardHandler))
	address, err := first.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := New(address.String(), slog.New(slog.DiscardHandler))
	if _, err := second.Start(t.Context()); err == nil {
		t.Error("a port was taken twice")
	}
	for _, m := range []*Server{first, second} {
		if err := m.Stop(); err != nil {
			t.Error(err)
		}
	}
}
