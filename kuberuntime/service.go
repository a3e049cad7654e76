package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Runtime is the kubelet's view of a container runtime, pod by pod.
type Runtime interface {
	Type() string
	Version(ctx context.Context) (string, error)
	APIVersion(ctx context.Context) (string, error)
	Status(ctx context.Context) (*runtimeapi.RuntimeStatus, error)
	GetPods(ctx context.Context, all bool) ([]*pod.Pod, error)
	SyncPod(ctx context.Context, p *v1.Pod, set *manifest.Set, status *pod.Status) SyncResult
	// KillPod uses the annotations of the containers if there is no manifest (nil).
	KillPod(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64) error
	GetPodStatus(ctx context.Context, uid, name, namespace string) (*pod.Status, error)
	GetContainerLogs(ctx context.Context, containerID string, o logfile.Options, stdout, stderr io.Writer) error
	DeleteContainer(ctx context.Context, id string) error
	GarbageCollect(ctx context.Context, policy GCPolicy, sources Sources) (*Garbage, error)
	UpdatePodCIDR(ctx context.Context, cidr string) error
	ImageService
}

// ImageService is the kubelet's view of the runtime's images.
type ImageService interface {
	PullImage(ctx context.Context, image string, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	GetImageRef(ctx context.Context, image string) (string, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image string) error
	ImageStats(ctx context.Context) (uint64, error)
}

// StreamingRuntime returns the URLs of sessions, which client/stream opens.
type StreamingRuntime interface {
	GetExec(ctx context.Context, id string, cmd []string, stdin, stdout, stderr, tty bool) (string, error)
	GetAttach(ctx context.Context, id string, stdin, stdout, stderr, tty bool) (string, error)
	GetPortForward(ctx context.Context, sandboxID string, ports []int32) (string, error)
}

// CommandRunner runs a command in a container to its end. For a non-zero
// status the error is a *CommandError; the output is returned, too.
type CommandRunner interface {
	RunInContainer(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, error)
}

// KubeGenericRuntime has everything that a kubelet needs of a CRI runtime.
type KubeGenericRuntime interface {
	Runtime
	StreamingRuntime
	CommandRunner
}

var _ KubeGenericRuntime = (*Manager)(nil)

// counts are the kubelet's metrics of calls to the runtime.
type counts struct {
	operations, failures *prometheus.CounterVec
	duration             *prometheus.HistogramVec
	now                  func() time.Time
}

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

// podMetrics are the kubelet's metrics of pods and their workers.
type podMetrics struct {
	workerStart, start prometheus.Histogram
	duration           *prometheus.HistogramVec
}

func newPodMetrics(r prometheus.Registerer) *podMetrics {
	p := &podMetrics{
		workerStart: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_start_duration_seconds", Help: "How long pods waited for their worker since they were first seen.",
		}),
		start: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "kubelet_pod_start_duration_seconds", Help: "How long pods took to run since they were first seen.",
			Buckets: []float64{.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600},
		}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubelet_pod_worker_duration_seconds", Help: "How long rounds of pods' workers took: create, update, sync, kill.",
		}, []string{"operation_type"}),
	}
	if r != nil {
		r.MustRegister(p.workerStart, p.start, p.duration)
	}
	return p
}

// instrumented is a connection to the runtime that counts every call, like the kubelet's instrumentedRuntimeService and
// instrumentedImageManagerService. NotFound of Stop and Remove calls is counted as an error but not returned.
type instrumented struct {
	grpc.ClientConnInterface
	*counts
}

func (i instrumented) Invoke(ctx context.Context, method string, req, resp any, opts ...grpc.CallOption) error {
	name := path.Base(method)
	operation := operationOf(name)
	start := i.now()
	i.operations.WithLabelValues(operation).Inc()
	err := i.ClientConnInterface.Invoke(ctx, method, req, resp, opts...)
	i.duration.WithLabelValues(operation).Observe(i.now().Sub(start).Seconds())
	if err == nil {
		err = checkAnswer(req, resp)
	}
	if err != nil {
		i.failures.WithLabelValues(operation).Inc()
	}
	if strings.HasPrefix(name, "Stop") || strings.HasPrefix(name, "Remove") {
		return ignoreNotFound(err)
	}
	return err
}

// operationOf returns the kubelet's name of a call, such as run_podsandbox for RunPodSandbox.
func operationOf(name string) string {
	words := wordStart.ReplaceAllString(strings.Replace(name, "PodSandbox", "Podsandbox", 1), "_$0")
	return strings.ToLower(strings.TrimPrefix(words, "_"))
}

var wordStart = lazyregexp.New(`[A-Z]`)

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
