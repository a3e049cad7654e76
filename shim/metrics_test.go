package shim

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/crishim/crishim/shim/network"
)

func TestMetricsKeepTheOldNames(t *testing.T) {
	m := newMetrics("127.0.0.1:0")
	address, err := m.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.engine.observe("list_containers", time.Second, nil)
	m.engine.observe("list_containers", time.Second, errors.New("x"))
	m.engine.observe("stop_container", time.Second, context.DeadlineExceeded)
	plugins := network.Plugins{Default: network.Bridge{}, Others: []network.Plugin{network.Host{}}}.Observed(m.network.observe)
	for _, p := range []network.Plugin{plugins.ForNew(t.Context(), false), plugins.ForExisting(network.NameHost, "host")} {
		if err := errors.Join(p.SetUp(t.Context(), network.Pod{}), p.TearDown(t.Context(), network.Pod{})); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := plugins.Default.Addresses(t.Context(), network.Pod{}); err != nil {
		t.Fatal(err)
	}
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
		`kubelet_network_plugin_operations_total{operation_type="set_up_pod"} 2`,
		`kubelet_network_plugin_operations_total{operation_type="tear_down_pod"} 2`,
		`kubelet_network_plugin_operations_duration_seconds_count{operation_type="get_pod_network_status"} 1`,
		"go_goroutines ",
	} {
		if !strings.Contains(string(body), line) {
			t.Errorf("no %s in the metrics", line)
		}
	}
	for path, want := range map[string]int{"goroutine": 200, "heap": 200, "profile?seconds=1": 200, "profile?seconds=x": 400, "nothing": 404} {
		resp, err := http.Get("http://" + address.String() + "/debug/pprof/" + path)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%s: got status %d, want %d", path, resp.StatusCode, want)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	if err := m.stop(); err != nil {
		t.Error(err)
	}
}

func TestMetricsOnATakenPort(t *testing.T) {
	first := newMetrics("127.0.0.1:0")
	address, err := first.start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	second := newMetrics(address.String())
	if _, err := second.start(t.Context()); err == nil {
		t.Error("a port was taken twice")
	}
	for _, m := range []*metrics{first, second} {
		if err := m.stop(); err != nil {
			t.Error(err)
		}
	}
}
