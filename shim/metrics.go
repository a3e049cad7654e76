package shim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/stream"
)

// readTime bounds how long a scraper may take to say what it wants, and how
// long a connection stays open without a request.
const readTime = 10 * time.Second

// metrics serves what the shim counts, under the names that dockershim's
// dashboards know, and Go's profiles.
type metrics struct {
	engine, network family

	registry *prometheus.Registry
	server   *http.Server
	done     chan struct{} // closed when the server has ended; nil before start
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
	m.server = &http.Server{
		Addr: address, Handler: mux,
		ReadHeaderTimeout: readTime, ReadTimeout: readTime, IdleTimeout: readTime, MaxHeaderBytes: stream.MaxHeaderBytes,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
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

// start listens and serves in the background. It gives the address, which
// tells the port where none was named.
func (m *metrics) start(ctx context.Context) (net.Addr, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", m.server.Addr)
	if err != nil {
		return nil, fmt.Errorf("serve metrics: %w", err)
	}
	m.server.Handler = guardMetrics(l.Addr(), writeTime, m.server.Handler)
	m.done = make(chan struct{})
	go func() {
		defer close(m.done)
		_ = m.server.Serve(l) // ends with an error when stop closes it
	}()
	return l.Addr(), nil
}

// stop ends the server, and profiles that are being taken.
func (m *metrics) stop() error {
	err := m.server.Close()
	if m.done != nil {
		<-m.done
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
