// Package metrics serves the shim's metrics under the names of dockershim.
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

	operations, failures, timeouts *prometheus.CounterVec
	duration                       *prometheus.HistogramVec
}

func New(address string, log *slog.Logger) *Server {
	counter := func(name, help string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "kubelet_docker_operations" + name, Help: help}, []string{"operation_type"})
	}
	s := &Server{
		operations: counter("_total", "Engine calls."),
		failures:   counter("_errors_total", "Engine calls that failed."),
		timeouts:   counter("_timeout_total", "Engine calls whose time was up."),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_docker_operations_duration_seconds", Help: "How long they took: Engine calls.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, []string{"operation_type"}),
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		s.operations, s.failures, s.timeouts, s.duration)
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	s.Server = metricsserver.New(address, mux, slog.NewLogLogger(log.Handler(), slog.LevelDebug))
	return s
}

func (s *Server) Observe(operation string, took time.Duration, err error) {
	s.operations.WithLabelValues(operation).Inc()
	s.duration.WithLabelValues(operation).Observe(took.Seconds())
	if err != nil {
		s.failures.WithLabelValues(operation).Inc()
	}
	if docker.Timeout(err) {
		s.timeouts.WithLabelValues(operation).Inc()
	}
}
