package verbs

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/test"
	"github.com/crishim/crishim/internal/test/stubcri"
	"github.com/crishim/crishim/shim"
	"github.com/crishim/crishim/shim/docker"
)

// spanCollector is an OpenTelemetry collector.
type spanCollector struct {
	collector.UnimplementedTraceServiceServer
	address string

	mu    sync.Mutex
	spans []*tracepb.Span
}

func startCollector(t *testing.T, o ...grpc.ServerOption) *spanCollector {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &spanCollector{address: l.Addr().String()}
	s := grpc.NewServer(o...)
	collector.RegisterTraceServiceServer(s, c)
	go func() { _ = s.Serve(l) }() // ends with Stop
	t.Cleanup(s.Stop)
	return c
}

func (c *spanCollector) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, resource := range r.GetResourceSpans() {
		for _, scope := range resource.GetScopeSpans() {
			c.spans = append(c.spans, scope.GetSpans()...)
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// paths are the names of spans with those of all their parents, in one line each.
func (c *spanCollector) paths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	byID := map[string]*tracepb.Span{}
	for _, s := range c.spans {
		byID[string(s.GetSpanId())] = s
	}
	var paths []string
	for _, s := range c.spans {
		path := s.GetName()
		for p := byID[string(s.GetParentSpanId())]; p != nil; p = byID[string(p.GetParentSpanId())] {
			path = p.GetName() + " > " + path
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// engineOverHTTP is a Docker engine without anything on it.
func engineOverHTTP(t *testing.T) (host string) {
	t.Helper()
	socket := filepath.Join(filepath.Dir(stubcri.SocketPath(t)), "docker.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Api-Version", "1.41")
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/_ping":
			fmt.Fprint(w, "OK")
		case strings.HasSuffix(r.URL.Path, "/version"):
			fmt.Fprint(w, `{"Version": "20.10.24", "ApiVersion": "1.41", "MinAPIVersion": "1.12"}`)
		case strings.HasSuffix(r.URL.Path, "/info"):
			fmt.Fprint(w, `{"CgroupDriver": "cgroupfs", "OSType": "linux"}`)
		case strings.HasSuffix(r.URL.Path, "nosuch/json"):
			w.WriteHeader(http.StatusNotFound)
			fmt.Fprint(w, `{"message": "No such image: nosuch"}`)
		case strings.HasSuffix(r.URL.Path, "/events"):
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			fmt.Fprint(w, "[]")
		}
	}))
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	return "unix://" + socket
}

// A command, its calls of CRI, the embedded shim's requests and the engine's calls are one trace.
func TestTraceOfACommand(t *testing.T) {
	spans := startCollector(t)
	c := &commandTest{t: t, vars: map[string]string{"XDG_RUNTIME_DIR": t.TempDir()}}
	c.shim = func(ctx context.Context, e client.Engine, o shim.Options) (client.Shim, error) {
		o.Engine.Endpoint, o.Engine.LookupEnv = &docker.Endpoint{Host: e.Host}, func(key string) (string, bool) { v, ok := c.vars[key]; return v, ok }
		return shim.StartEmbedded(ctx, o)
	}
	r := c.run("--enable-tracing", "--tracing-endpoint", spans.address, "-r", "docker+"+engineOverHTTP(t), "images", "-o", "name")
	if r.code != 0 || r.err != "" {
		t.Fatalf("got %+v", r)
	}
	const call = "runtime.v1.ImageService/ListImages"
	want := "images > " + call + " > " + call + " > engine list_images"
	if paths := spans.paths(); !slices.Contains(paths, want) {
		t.Errorf("there is no %s in\n%s", want, strings.Join(paths, "\n"))
	}
}

// A request to serve belongs to its client's trace, and the engine's calls to the request.
func TestTraceOfServe(t *testing.T) {
	spans := startCollector(t)
	socket := filepath.Join(filepath.Dir(stubcri.SocketPath(t)), "cri.sock")
	c := &commandTest{t: t, vars: map[string]string{"XDG_RUNTIME_DIR": t.TempDir()}}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan result, 1)
	go func() {
		served <- c.runAs(ctx, "crishim", "serve", "--enable-tracing", "--tracing-endpoint", spans.address,
			"--listen", "unix://"+socket, "--docker-endpoint", engineOverHTTP(t), "--network-plugin", "bridge")
	}()
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	call, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(t.Context(), "traceparent", "00-"+trace+"-"+parent+"-01"), time.Minute)
	defer cancel()
	_, err = runtimeapi.NewRuntimeServiceClient(conn).UpdateRuntimeConfig(call, &runtimeapi.UpdateRuntimeConfigRequest{}, grpc.WaitForReady(true))
	if err != nil {
		t.Error(err)
	}
	_, err = runtimeapi.NewImageServiceClient(conn).ImageStatus(call, &runtimeapi.ImageStatusRequest{Image: &runtimeapi.ImageSpec{Image: "nosuch"}})
	if err != nil {
		t.Error(err)
	}
	end()
	if r := <-served; r.code != 0 && r.code != 128+int(syscall.SIGTERM) {
		t.Errorf("serve: %+v", r)
	}
	spans.mu.Lock()
	found := map[string]bool{}
	for _, s := range spans.spans {
		if hex.EncodeToString(s.GetTraceId()) == trace {
			found[s.GetName()+" of the client"] = hex.EncodeToString(s.GetParentSpanId()) == parent
		}
	}
	spans.mu.Unlock()
	if !found["runtime.v1.ImageService/ImageStatus of the client"] {
		t.Errorf("no request is part of the client's trace: %v", found)
	}
	if paths := spans.paths(); !slices.ContainsFunc(paths, func(p string) bool { return strings.HasPrefix(p, "runtime.v1.ImageService/ImageStatus > engine ") }) {
		t.Errorf("no engine call is below the request in\n%s", strings.Join(paths, "\n"))
	}
}

// With a certificate of the collector, traces are sent over TLS. With an unreadable certificate they are not sent.
func TestTracesOverTLS(t *testing.T) {
	certFile, keyFile := test.Certificate(t)
	own, err := credentials.NewServerTLSFromFile(certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		file    string
		options []grpc.ServerOption
		sent    bool
	}{
		"its own":                       {certFile, []grpc.ServerOption{grpc.Creds(own)}, true},
		"of a collector without TLS":    {certFile, nil, false},
		"none that can be read":         {"/nonexistent", []grpc.ServerOption{grpc.Creds(own)}, false},
		"none that can be read, no TLS": {"/nonexistent", nil, false},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", tc.file) // for the exporter
		spans := startCollector(t, tc.options...)
		c := withStub(t, stubcri.Options{})
		c.vars["OTEL_EXPORTER_OTLP_CERTIFICATE"] = tc.file
		r := c.run("--enable-tracing", "--tracing-endpoint", spans.address, "ps")
		if r.code != 0 || strings.Contains(r.err, "traces are not exported") == tc.sent || (len(spans.paths()) > 0) != tc.sent {
			t.Errorf("%s: got %+v and %q", name, r, spans.paths())
		}
	}
}

// A traced command that fails says so in its span, and none is made without --enable-tracing or by a
// sampling rate of 0.
func TestTracesThatAreAskedFor(t *testing.T) {
	for line, want := range map[string]int{
		"ps": 0, "--enable-tracing --tracing-sampling-rate-per-million 0 ps": 0,
		"--enable-tracing ps -o name": 1, "--enable-tracing --tracing-sampling-rate-per-million 1000000 ps": 1, "--enable-tracing inspect nosuch": 1,
		"ps --enable-tracing": 1, "--enable-tracing --compat=crictl ps": 1,
	} {
		spans := startCollector(t)
		c := withStub(t, stubcri.Options{})
		r := c.run(append([]string{"--tracing-endpoint", spans.address}, strings.Fields(line)...)...)
		roots, failed := 0, false
		for _, s := range spans.spans {
			if len(s.GetParentSpanId()) == 0 {
				roots++
				failed = s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR
			}
		}
		if roots != want || failed != (r.code != 0) {
			t.Errorf("%s: %d traces, want %d: %v; %+v", line, roots, want, spans.paths(), r)
		}
	}
}

// A missing collector costs a line on stderr, a silent collector also a second.
func TestTracingWithoutACollector(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	refusing, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refusing.Close()
	for l, reason := range map[net.Listener]string{
		silent: "no answer within 1s", refusing: "dial tcp " + refusing.Addr().String() + ": connect: connection refused",
	} {
		c := withStub(t, stubcri.Options{})
		seedNode(c.stub)
		plain := c.run("ps", "-o", "name")
		start := time.Now()
		r := c.run("--enable-tracing", "--tracing-endpoint", l.Addr().String(), "ps", "-o", "name")
		r.want(t, 0, plain.out, "crishim: warning: traces are not exported to "+l.Addr().String()+": "+reason+"\n")
		if took := time.Since(start); took > 10*time.Second { // a second, and what a busy machine takes
			t.Errorf("%s: the command took %s", reason, took)
		}
	}
}

func TestTracingFlags(t *testing.T) {
	c := withStub(t, stubcri.Options{})
	for _, rate := range []string{"-2", "1000001"} {
		r := c.run("--tracing-sampling-rate-per-million", rate, "ps")
		if r.code != cli.ExitUsage || !strings.Contains(r.err, "must be 0 to 1000000, or -1 for every trace") {
			t.Errorf("%s: %+v", rate, r)
		}
	}
}

// TestTracesHaveNoTextOfContainers: what leaves the machine says that a call failed, and not with which words.
func TestTracesHaveNoTextOfContainers(t *testing.T) {
	spans := startCollector(t)
	c := withStub(t, stubcri.Options{})
	c.stub.AddContainer(c.stub.AddPod("default", "web"), "main")
	c.stub.Fail("StopContainer", errors.New("password=hunter2"))
	if got := c.run("--enable-tracing", "--tracing-endpoint", spans.address, "stop", "web"); got.code != 1 || !strings.Contains(got.err, "hunter2") {
		t.Fatalf("got %+v", got)
	}
	spans.mu.Lock()
	defer spans.mu.Unlock()
	failed := 0
	for _, s := range spans.spans {
		if strings.Contains(s.String(), "hunter2") {
			t.Errorf("got %s", s)
		}
		if s.GetStatus().GetCode() == tracepb.Status_STATUS_CODE_ERROR {
			failed++
		}
	}
	if failed < 2 {
		t.Errorf("%d spans have failed, want those of the command and the call", failed)
	}
}
