package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	urfave "github.com/urfave/cli/v2"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	exportTimeout = time.Second // limits each export, and the wait at the end of a command
	perMillion    = 1_000_000
)

// tracing sends the spans of a command line to an OpenTelemetry collector. It does nothing without --enable-tracing.
type tracing struct {
	printer  *Printer
	provider *sdktrace.TracerProvider
	exporter *reportingExporter
	command  trace.Span // nil for serve and sync, in which each request is a trace

	// Flags.
	enabled  bool
	endpoint string
	rate     int // traces to sample per million; -1 for all
}

func newTracing(p *Printer) *tracing {
	return &tracing{printer: p, endpoint: "127.0.0.1:4317", rate: -1}
}

// start begins the trace of a command.
func (t *tracing) start(c *urfave.Context) error {
	if t.rate < -1 || t.rate > perMillion {
		return Invalid("tracing-sampling-rate-per-million", t.rate, "must be 0 to 1000000, or -1 for every trace")
	}
	if !t.enabled {
		return nil
	}
	t.exporter = &reportingExporter{endpoint: t.endpoint, printer: t.printer}
	options := []otlptracegrpc.Option{
		otlptracegrpc.WithEndpoint(t.endpoint), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{Enabled: false}),
		otlptracegrpc.WithDialOption(grpc.WithContextDialer(t.exporter.dial)),
	}
	if !overTLS(t.printer.process) {
		options = append(options, otlptracegrpc.WithInsecure())
	}
	exporter, err := otlptracegrpc.New(c.Context, options...)
	if err != nil {
		return fmt.Errorf("--enable-tracing: %w", err)
	}
	t.exporter.SpanExporter = exporter
	sampler := sdktrace.AlwaysSample()
	if t.rate >= 0 {
		sampler = sdktrace.TraceIDRatioBased(float64(t.rate) / perMillion)
	}
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(t.exporter, sdktrace.WithExportTimeout(exportTimeout)),
		sdktrace.WithSampler(sdktrace.ParentBased(sampler)), // serve follows the sampling decision of its client
		sdktrace.WithResource(resource.NewSchemaless(attribute.String("service.name", "crishim"), attribute.String("service.version", t.printer.process.OwnVersion()))),
	)
	switch verb := c.App.Command(c.Args().First()); {
	case verb == nil, verb.Name == "serve", verb.Name == "sync":
	default:
		c.Context, t.command = t.provider.Tracer("crishim").Start(c.Context, verb.Name)
	}
	return nil
}

// overTLS reports whether the environment names a certificate for the collector. The exporter reads the certificate
// itself. Without WithInsecure, an unreadable certificate prevents the export.
func overTLS(p *Process) bool {
	for _, name := range []string{"OTEL_EXPORTER_OTLP_CERTIFICATE", "OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE"} {
		if p.getenv(name) != "" {
			return true
		}
	}
	return false
}

// stop ends the command's span and waits for the export.
func (t *tracing) stop(err error) {
	if t.provider == nil {
		return
	}
	if t.command != nil {
		if err != nil {
			t.command.SetStatus(codes.Error, "")
		}
		t.command.End()
	}
	ctx, cancel := context.WithTimeout(context.Background(), exportTimeout)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.exporter.report(err)
	}
}

// tracer returns the tracer provider, nil without --enable-tracing.
func (t *tracing) tracer() trace.TracerProvider {
	if t.provider == nil {
		return nil
	}
	return t.provider
}

// reportingExporter warns about a failed export, once until the next success. The SDK itself would call an error handler
// that is global to the process.
type reportingExporter struct {
	sdktrace.SpanExporter
	endpoint string
	printer  *Printer
	mu       sync.Mutex            // held until the warning is written
	failed   bool                  // the last export failed
	dialled  atomic.Pointer[error] // result of the last dial, nil after a success
}

func (e *reportingExporter) dial(ctx context.Context, address string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address)
	e.dialled.Store(&err)
	return conn, err
}

func (e *reportingExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	sent := make([]sdktrace.ReadOnlySpan, len(spans))
	for i, s := range spans {
		sent[i] = harmless{s}
	}
	err := e.SpanExporter.ExportSpans(ctx, sent)
	e.report(err)
	return nil
}

// harmless is a span without texts that a container or its user can choose. It omits the error text of the status, the
// events, and attributes such as paths of the engine.
type harmless struct{ sdktrace.ReadOnlySpan }

func (s harmless) Status() sdktrace.Status {
	return sdktrace.Status{Code: s.ReadOnlySpan.Status().Code}
}

func (s harmless) Events() []sdktrace.Event { return nil }

func (s harmless) Attributes() (kept []attribute.KeyValue) {
	for _, a := range s.ReadOnlySpan.Attributes() {
		if slices.Contains(harmlessAttributes, string(a.Key)) {
			kept = append(kept, a)
		}
	}
	return kept
}

var harmlessAttributes = []string{
	"rpc.system", "rpc.system.name", "rpc.service", "rpc.method", "rpc.grpc.status_code", "rpc.response.status_code", "error.type",
	"http.request.method", "http.response.status_code", "server.address", "server.port", "network.transport", "network.protocol.name", "network.protocol.version",
}

func (e *reportingExporter) report(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	failed := e.failed
	e.failed = err != nil
	if err == nil || failed {
		return
	}
	reason := WithoutStatusPrefix(err)
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == grpccodes.DeadlineExceeded {
		reason = fmt.Sprintf("no answer within %s", exportTimeout)
	} else if dialled := e.dialled.Load(); dialled != nil && *dialled != nil {
		reason = (*dialled).Error()
	}
	e.printer.Warn("traces are not exported to %s: %s", e.endpoint, reason)
}
