// Package metrics serves what a shim counts, under the names that dockershim's dashboards
// know.
package metrics

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

type Server struct {
	*metricsserver.Server
	Engine, Network Operations
}

type Operations struct {
	operations, failures, timeouts *prometheus.CounterVec
	duration                       *prometheus.HistogramVec
}

func newOperations(registry *prometheus.Registry, prefix, what string) Operations {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: prefix + name, Help: help}, []string{"operation_type"})
	}
	o := Operations{
		operations: counter("_operations_total", what+"."),
		failures:   counter("_operations_errors_total", what+" that failed."),
		timeouts:   counter("_operations_timeout_total", what+" whose time was up."),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "_operations_duration_seconds", Help: "How long they took: " + what + ".",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{"operation_type"}),
	}
	registry.MustRegister(o.operations, o.failures, o.timeouts, o.duration)
	return o
}

func New(address string, log *slog.Logger) *Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	return &Server{
		Server:  metricsserver.New(address, mux, slog.NewLogLogger(log.Handler(), slog.LevelDebug)),
		Engine:  newOperations(registry, "kubelet_docker", "Engine calls"),
		Network: newOperations(registry, "kubelet_network_plugin", "Calls to network plugins"),
	}
}

func (o Operations) Observe(operation string, took time.Duration, err error) {
	o.operations.WithLabelValues(operation).Inc()
	o.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		o.failures.WithLabelValues(operation).Inc()
	}
	if docker.Timeout(err) {
		o.timeouts.WithLabelValues(operation).Inc()
	}
}
