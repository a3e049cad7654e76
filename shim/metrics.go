package shim

import (
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/crishim/crishim/internal/metricsserver"
	"github.com/crishim/crishim/shim/docker"
)

// metrics serves what the shim counts, under the names that dockershim's
// dashboards know, and Go's profiles.
type metrics struct {
	engine, network family

	registry *prometheus.Registry
	server   *metricsserver.Server
}

// family are the metrics of one kind of operation.
type family struct {
	operations, failures, timeouts *prometheus.CounterVec
	duration                       *prometheus.HistogramVec
}

func newFamily(registry *prometheus.Registry, prefix, what string) family {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, []string{"operation_type"})
	}
	f := family{
		operations: counter("_operations_total", what+"."),
		failures:   counter("_operations_errors_total", what+" that failed."),
		timeouts:   counter("_operations_timeout_total", what+" whose time was up."),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_operations_duration_seconds", Help: "How long they took: " + what + ".",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{"operation_type"}),
	}
	registry.MustRegister(f.operations, f.failures, f.timeouts, f.duration)
	return f
}

func newMetrics(address string, log *slog.Logger) *metrics {
	registry := prometheus.NewRegistry()
	m := &metrics{
		engine:   newFamily(registry, "kubelet_docker", "Engine calls"),
		network:  newFamily(registry, "kubelet_network_plugin", "Calls to network plugins"),
		registry: registry,
	}
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/{$}", profileIndex)
	mux.HandleFunc("GET /debug/pprof/{name}", profile)
	m.server = metricsserver.New(address, mux, slog.NewLogLogger(log.Handler(), slog.LevelDebug))
	return m
}

// observe implements docker.Observe and network.Observe.
func (f family) observe(operation string, took time.Duration, err error) {
	f.operations.WithLabelValues(operation).Inc()
	f.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		f.failures.WithLabelValues(operation).Inc()
	}
	if docker.Timeout(err) {
		f.timeouts.WithLabelValues(operation).Inc()
	}
}
