package kuberuntime

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
)

// Metrics counts the calls to the runtime, under the kubelet's names.
type Metrics struct {
	operations, failures *prometheus.CounterVec
	duration             *prometheus.HistogramVec
	now                  func() time.Time
}

// NewMetrics registers the metrics; a nil registerer keeps them private.
func NewMetrics(r prometheus.Registerer, now func() time.Time) *Metrics {
	label := []string{"operation_type"}
	m := &Metrics{
		operations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_total", Help: "Calls to the container runtime.",
		}, label),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kubelet_runtime_operations_errors_total", Help: "Calls to the container runtime that failed.",
		}, label),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_runtime_operations_duration_seconds", Help: "How long calls to the container runtime took.",
			Buckets: prometheus.ExponentialBuckets(.005, 2.5, 14),
		}, label),
		now: now,
	}
	if r != nil {
		r.MustRegister(m.operations, m.failures, m.duration)
	}
	return m
}

// call makes one call of the runtime and counts it. Every call goes through here.
func call[Req, Resp any](ctx context.Context, m *Metrics, operation string, f func(context.Context, Req, ...grpc.CallOption) (Resp, error), req Req) (Resp, error) {
	start := m.now()
	m.operations.WithLabelValues(operation).Inc()
	resp, err := f(ctx, req)
	m.duration.WithLabelValues(operation).Observe(m.now().Sub(start).Seconds())
	if err != nil {
		m.failures.WithLabelValues(operation).Inc()
	}
	return resp, err
}
