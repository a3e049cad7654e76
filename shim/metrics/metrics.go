// Package metrics serves what a shim counts, under the names that dockershim's dashboards
// know, and Go's profiles.
package metrics

import (
	"fmt"
	"html"
	"io"
	"log/slog"
	"net/http"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/crishim/crishim/internal/metricsserver"
	"github.com/crishim/crishim/shim/docker"
)

// Server serves the metrics and profiles.
type Server struct {
	*metricsserver.Server
	Engine, Network Operations
}

// Operations are the metrics of one kind of operation.
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

// New makes a server for an address; errors of single connections go to the log.
func New(address string, log *slog.Logger) *Server {
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /debug/pprof/{$}", profileIndex)
	mux.HandleFunc("GET /debug/pprof/{name}", profile)
	return &Server{
		Server:  metricsserver.New(address, mux, slog.NewLogLogger(log.Handler(), slog.LevelDebug)),
		Engine:  newOperations(registry, "kubelet_docker", "Engine calls"),
		Network: newOperations(registry, "kubelet_network_plugin", "Calls to network plugins"),
	}
}

// Observe implements docker.Observe and network.Observe.
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

// defaultProfile is how long a profile that is taken over time takes where
// nobody says.
const defaultProfile = 30

// overTime are the profiles that are taken while the client waits.
var overTime = map[string]struct {
	start func(io.Writer) error
	stop  func()
}{
	"profile": {pprof.StartCPUProfile, pprof.StopCPUProfile},
	"trace":   {trace.Start, trace.Stop},
}

// profile serves Go's profiles in the form that "go tool pprof URL" and "go tool
// trace" read. The standard library's own handler would bring a template engine
// along, and registers itself where nobody asked.
func profile(w http.ResponseWriter, r *http.Request) {
	if _, ok := overTime[r.PathValue("name")]; ok {
		profileOverTime(w, r)
		return
	}
	p := pprof.Lookup(r.PathValue("name"))
	if p == nil {
		http.NotFound(w, r)
		return
	}
	debug, err := strconv.Atoi(r.FormValue("debug"))
	if err != nil {
		debug = 0
	}
	if debug != 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	_ = p.WriteTo(w, debug) // fails where the client has gone, and cannot be told
}

func profileOverTime(w http.ResponseWriter, r *http.Request) {
	seconds := defaultProfile
	if text := r.FormValue("seconds"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			http.Error(w, "seconds must be a number above 0", http.StatusBadRequest)
			return
		}
		seconds = n
	}
	kind := overTime[r.PathValue("name")]
	if err := kind.start(w); err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	defer kind.stop()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-r.Context().Done():
	}
}

// profileIndex lists the profiles, with how much is in those that count.
func profileIndex(w http.ResponseWriter, _ *http.Request) {
	var page strings.Builder
	page.WriteString("<!DOCTYPE html><title>profiles</title><ul>\n")
	for _, p := range pprof.Profiles() {
		name := html.EscapeString(p.Name())
		fmt.Fprintf(&page, "<li><a href=\"%s?debug=1\">%s</a> %d\n", name, name, p.Count())
	}
	names := make([]string, 0, len(overTime))
	for name := range overTime {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(&page, "<li><a href=\"%s?seconds=5\">%s</a> for ?seconds=N, or %d\n", name, name, defaultProfile)
	}
	page.WriteString("</ul>\n")
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	_, _ = io.WriteString(w, page.String())
}
