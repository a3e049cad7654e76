package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"path"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// counts are the kubelet's metrics of calls to the runtime.
type counts struct {
	operations, failures *prometheus.CounterVec
	duration             *prometheus.HistogramVec
	now                  func() time.Time
}

// newCounts registers the metrics; a nil registerer keeps them private.
func newCounts(r prometheus.Registerer, now func() time.Time) *counts {
	label := []string{"operation_type"}
	c := &counts{
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
		r.MustRegister(c.operations, c.failures, c.duration)
	}
	return c
}

// instrumented is a connection to the runtime on which every call is counted. What is to be gone and
// is gone already is no error, and an answer that lacks what the CRI promises is one. What client.Connect
// returns words the other errors. The kubelet has instrumentedRuntimeService for it.
type instrumented struct {
	grpc.ClientConnInterface
	*counts
}

// Invoke makes one call.
func (i instrumented) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	name := path.Base(method)
	operation := operationOf(name)
	start := i.now()
	i.operations.WithLabelValues(operation).Inc()
	err := i.ClientConnInterface.Invoke(ctx, method, req, resp, opts...)
	i.duration.WithLabelValues(operation).Observe(i.now().Sub(start).Seconds())
	if err != nil {
		i.failures.WithLabelValues(operation).Inc()
		if strings.HasPrefix(name, "Stop") || strings.HasPrefix(name, "Remove") {
			return ignoreNotFound(err)
		}
		return err
	}
	return checkAnswer(req, resp)
}

// operationOf is the kubelet's name of a call: RunPodSandbox is run_podsandbox.
func operationOf(name string) string {
	words := wordStart.ReplaceAllString(strings.Replace(name, "PodSandbox", "Podsandbox", 1), "_$0")
	return strings.ToLower(strings.TrimPrefix(words, "_"))
}

var wordStart = regexp.MustCompile(`[A-Z]`)

// checkAnswer is an error for an answer that a runtime must not give.
func checkAnswer(req, resp any) error {
	switch r := resp.(type) {
	case *runtimeapi.RunPodSandboxResponse:
		if r.GetPodSandboxId() == "" {
			return errEmptyID
		}
	case *runtimeapi.CreateContainerResponse:
		if r.GetContainerId() == "" {
			return errEmptyID
		}
	case *runtimeapi.PullImageResponse:
		if r.GetImageRef() == "" {
			return fmt.Errorf("pull %s: the runtime answered with an empty reference", req.(*runtimeapi.PullImageRequest).GetImage().GetImage())
		}
	case interface{ GetUrl() string }:
		if r.GetUrl() == "" {
			return errors.New("the runtime answered without a stream URL")
		}
	}
	return nil
}

var errEmptyID = errors.New("the runtime answered with an empty id")

func isNotFound(err error) bool { return status.Code(err) == codes.NotFound }

func ignoreNotFound(err error) error {
	if isNotFound(err) {
		return nil
	}
	return err
}
