// Package kuberuntime runs pods from manifests on any CRI runtime: what the kubelet's
// runtime manager does, without a cluster.
//
// New makes a Manager over connections to the CRI's services; SyncPod brings one pod to what its manifest says
// and returns, KillPod ends it, GetPodStatus reads its state, GarbageCollect removes what
// is dead. Each call does one step of a loop that somebody else drives: Up until one pod
// runs or is ready, Loop for a folder of static pods with probes and restarts.
//
// The decisions are in plan, the CRI messages in criconfig, host folders in volume, probes
// in probe, manifests in manifest, keys and states in pod. There is no API server: nothing
// is stored but what the runtime and the pods' folders hold, and whatever another
// process did to the pods is seen at the next step.
package kuberuntime

import (
	"context"
	"io"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/logfile"
)

// Runtime is the kubelet's view of a container runtime, pod by pod.
type Runtime interface {
	// Type is the runtime's name.
	Type() string
	Version(ctx context.Context) (string, error)
	// APIVersion may be a minute old.
	APIVersion(ctx context.Context) (string, error)
	Status(ctx context.Context) (*runtimeapi.RuntimeStatus, error)
	// GetPods lists the pods that run, or all.
	GetPods(ctx context.Context, all bool) ([]*pod.Pod, error)
	SyncPod(ctx context.Context, p *v1.Pod, set *manifest.Set, status *pod.Status) SyncResult
	// KillPod ends a pod's containers and its sandboxes. Without a manifest (nil) what is
	// needed is read from the containers themselves.
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
	// PullImage returns what the runtime knows the image by.
	PullImage(ctx context.Context, image string, auths []*runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	// GetImageRef is "" for an image that is not there.
	GetImageRef(ctx context.Context, image string) (string, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	RemoveImage(ctx context.Context, image string) error
	// ImageStats is the bytes that all images use.
	ImageStats(ctx context.Context) (uint64, error)
}

// StreamingRuntime returns the URLs of sessions, which client/stream opens.
type StreamingRuntime interface {
	GetExec(ctx context.Context, id string, cmd []string, stdin, stdout, stderr, tty bool) (string, error)
	GetAttach(ctx context.Context, id string, stdin, stdout, stderr, tty bool) (string, error)
	GetPortForward(ctx context.Context, sandboxID string, ports []int32) (string, error)
}

// CommandRunner runs a command in a container to its end. A command that ends with
// another status than 0 is an *ExitError; its output is returned as well.
type CommandRunner interface {
	RunInContainer(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, error)
}

// KubeGenericRuntime is all that a kubelet asks of a runtime that speaks the CRI.
type KubeGenericRuntime interface {
	Runtime
	StreamingRuntime
	CommandRunner
}

var _ KubeGenericRuntime = (*Manager)(nil)
