// Package pod has the basic types of the pod runtime: the kubelet's annotation keys, the directories on the host, the
// hashes that detect changes, and the state of a pod as the runtime reports it. It does not call the runtime.
package pod

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

// Keys of the kubelet's annotations.
const (
	HashAnnotation             = kube.AnnotationHash
	RestartCountAnnotation     = kube.AnnotationRestartCount
	MessagePathAnnotation      = "io.kubernetes.container.terminationMessagePath"
	MessagePolicyAnnotation    = "io.kubernetes.container.terminationMessagePolicy"
	PreStopAnnotation          = "io.kubernetes.container.preStopHandler"
	PortsAnnotation            = kube.AnnotationPorts
	DeletionGraceAnnotation    = "io.kubernetes.pod.deletionGracePeriod"
	TerminationGraceAnnotation = "io.kubernetes.pod.terminationGracePeriod"

	ConfigHashAnnotation   = "kubernetes.io/config.hash"
	ConfigSeenAnnotation   = "kubernetes.io/config.seen"
	ConfigSourceAnnotation = "kubernetes.io/config.source"
	configMirrorAnnotation = "kubernetes.io/config.mirror"
)

// DirAnnotation names the manifest directory of a pod that sync has created. sync does not touch pods without it, such
// as static pods of a kubelet and pods of apply.
const DirAnnotation = "crishim.io/sync.directory"

const FileAnnotation = "crishim.io/sync.file"

// BackoffLimitAnnotation has a Job's backoffLimit: how often containers of the pod may restart before the pod fails.
const BackoffLimitAnnotation = "crishim.io/job.backoff-limit"

// PodRestartsAnnotation has the number of times that all containers of the pod were restarted together in their sandbox
// before a container was created.
const PodRestartsAnnotation = "crishim.io/pod-restarts"

// VolumeDirAnnotation names the parent directory of the pod's claims. A claim has the subdirectory NAMESPACE/NAME.
const VolumeDirAnnotation = "crishim.io/volume-dir"

// Dirs are the host directories of the pod runtime.
type Dirs struct {
	Root string // volumes, termination messages, hosts files: Root/pods/UID; also claims, seccomp profiles and locks
	Logs string // logs of all pods; for root the kubelet's /var/log/pods
	// LegacyLogs is the kubelet's /var/log/containers with a link for each log, or empty
	// for no links.
	LegacyLogs string
}

// DefaultDirs returns the kubelet's log directories and /var/lib/crishim for root, and directories in XDG_DATA_HOME or
// the user's home for others. CRISHIM_ROOT overrides Root and moves Logs below it. CRISHIM_LOGS overrides Logs.
// LegacyLogs is set only if Logs is the default for root.
func DefaultDirs(lookupEnv func(string) (string, bool)) Dirs {
	d := Dirs{Root: "/var/lib/crishim", Logs: "/var/log/pods", LegacyLogs: "/var/log/containers"}
	if os.Geteuid() != 0 {
		data, _ := lookupEnv("XDG_DATA_HOME")
		if data == "" {
			home, _ := lookupEnv("HOME")
			data = filepath.Join("/", home, ".local", "share")
		}
		root := filepath.Join(data, "crishim")
		d = Dirs{Root: root, Logs: filepath.Join(root, "logs")}
	}
	if root, _ := lookupEnv("CRISHIM_ROOT"); root != "" {
		d = Dirs{Root: root, Logs: filepath.Join(root, "logs")}
	}
	if logs, _ := lookupEnv("CRISHIM_LOGS"); logs != "" {
		d.Logs, d.LegacyLogs = logs, ""
	}
	return d
}

func (d Dirs) Pods() string { return filepath.Join(d.Root, "pods") }

// IsUID reports whether a uid is safe as the name of a pod's directory. Other tools may give a pod any text as uid, such
// as a path that leads out of the directory of all pods.
func IsUID(uid string) bool {
	return uid != "" && uid != "." && uid != ".." && !strings.ContainsAny(uid, "/\x00")
}

func (d Dirs) Pod(uid string) string { return filepath.Join(d.Pods(), uid) }

// Container returns the directory of a container's termination messages.
func (d Dirs) Container(uid, name string) string {
	return filepath.Join(d.Pod(uid), "containers", name)
}

func (d Dirs) Hosts(uid string) string { return filepath.Join(d.Pod(uid), "etc-hosts") }

func (d Dirs) Volume(uid, kind, name string) string {
	return filepath.Join(d.Pod(uid), "volumes", "kubernetes.io~"+kind, name)
}

// SubPath returns the mount point on the host for a sub path of a volume. index is the position of the volumeMount in its
// container.
func (d Dirs) SubPath(uid, volume, container string, index int) string {
	return filepath.Join(d.Pod(uid), "volume-subpaths", volume, container, strconv.Itoa(index))
}

// Claims returns the default parent directory of claims, which --volume-dir overrides.
func (d Dirs) Claims() string { return filepath.Join(d.Root, "claims") }

func (d Dirs) Seccomp() string { return filepath.Join(d.Root, "seccomp") }

func (d Dirs) PodLogs(p *v1.Pod) string {
	return filepath.Join(d.Logs, LogDir(p.Namespace, p.Name, string(p.UID)))
}

func LogDir(namespace, name, uid string) string { return namespace + "_" + name + "_" + uid }

// ContainerHash returns the hash that detects a changed container, like the kubelet's HashContainer. It covers only name
// and image, so that only a new image restarts the container.
func ContainerHash(c *v1.Container) uint64 {
	data, err := json.Marshal(map[string]string{"name": c.Name, "image": c.Image})
	if err != nil { // two strings always marshal
		panic(err)
	}
	h := fnv.New32a()
	h.Write(data)
	return uint64(h.Sum32())
}

func FormatHash(h uint64) string { return strconv.FormatUint(h, 16) }

// UID derives a pod's uid from its manifest, without images, pull policies, ephemeral containers and annotations about the
// pod's source, which the pod runtime sets itself. As with an API server, a new image restarts a container in the same
// pod. Any other change makes another pod. The hash includes a uid in the manifest, which distinguishes pods of the same
// name.
func UID(p *v1.Pod) (types.UID, error) {
	stripped := p.DeepCopy()
	for i := range stripped.Spec.InitContainers {
		stripped.Spec.InitContainers[i].Image = ""
		stripped.Spec.InitContainers[i].ImagePullPolicy = ""
	}
	for i := range stripped.Spec.Containers {
		stripped.Spec.Containers[i].Image = ""
		stripped.Spec.Containers[i].ImagePullPolicy = ""
	}
	stripped.Spec.EphemeralContainers = nil // ephemeral containers join a running pod
	for key := range stripped.Annotations {
		switch key { // set by the pod runtime, not by the manifest
		case ConfigHashAnnotation, ConfigSeenAnnotation, ConfigSourceAnnotation, configMirrorAnnotation, DirAnnotation, FileAnnotation:
			delete(stripped.Annotations, key)
		}
	}
	data, err := json.Marshal(struct {
		Namespace, Name, UID string
		Labels, Annotations  map[string]string
		Spec                 v1.PodSpec
	}{p.Namespace, p.Name, string(p.UID), stripped.Labels, stripped.Annotations, stripped.Spec})
	if err != nil {
		return "", fmt.Errorf("hash pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	sum := sha256.Sum256(data)
	h := hex.EncodeToString(sum[:16])
	return types.UID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]), nil
}

// Pod is a pod as the runtime lists it, like the kubelet's kubecontainer.Pod.
type Pod struct {
	UID, Name, Namespace string
	Sandboxes            []*runtimeapi.PodSandbox
	Containers           []*runtimeapi.Container
}

func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// Status is the state of one pod, like the kubelet's PodStatus. Sandboxes and containers are sorted, the newest first.
type Status struct {
	UID, Name, Namespace string
	IPs                  []string
	Sandboxes            []*runtimeapi.PodSandboxStatus
	Containers           []*ContainerStatus
	At                   time.Time
}

type ContainerStatus struct {
	ID, Name, SandboxID              string
	State                            runtimeapi.ContainerState
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int
	Image, ImageRef, ImageID         string
	Hash                             uint64
	RestartCount, Attempt            int
	Replaced                         bool // SyncPod stopped it for a new image
	Reason, Message                  string
	RuntimeMessage                   string // the message without the text that the container wrote
	LogPath                          string
	Labels, Annotations              map[string]string
	Mounts                           []*runtimeapi.Mount
	Resources                        *runtimeapi.ContainerResources
}

func (c *ContainerStatus) Running() bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// Paused reports whether the container is paused. Only crishim's dockershim tells this, in an annotation.
func (c *ContainerStatus) Paused() bool {
	return c.Running() && c.Annotations[kube.AnnotationPaused] != ""
}

func (c *ContainerStatus) Exited() bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_EXITED
}

// NeverStarted reports whether the attempt ended before its command ran. It checks the start time and the reasons of
// containerd and Docker for a failed start.
func (c *ContainerStatus) NeverStarted() bool {
	return c.Exited() && (c.StartedAt.IsZero() && c.ExitCode != 0 || c.Reason == "StartError" || c.Reason == "ContainerCannotRun")
}

// Unknown reports whether the runtime has lost track of the container.
func (c *ContainerStatus) Unknown() bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN
}

// MayRun reports whether the container may have processes to stop.
func (c *ContainerStatus) MayRun() bool { return c.Running() || c.Unknown() }

// OOMKilled is the runtimes' reason for a container that used too much memory. If the kernel killed only a child, the exit
// code may be 0.
const OOMKilled = "OOMKilled"

// Succeeded reports whether the container succeeded. By the kubelet's rule for init containers, a container with an OOM
// kill has failed even if its exit code is 0.
func (c *ContainerStatus) Succeeded() bool {
	return c.Exited() && c.ExitCode == 0 && c.Reason != OOMKilled
}

func (s *Status) Sandbox() *runtimeapi.PodSandboxStatus {
	if s == nil || len(s.Sandboxes) == 0 {
		return nil
	}
	return s.Sandboxes[0]
}

func (s *Status) Container(name string) *ContainerStatus {
	return s.newest(func(c *ContainerStatus) bool { return c.Name == name })
}

func (s *Status) LastEnded(name string) *ContainerStatus {
	return s.newest(func(c *ContainerStatus) bool { return c.Name == name && c.Exited() })
}

func (s *Status) Attempts(name string) []*ContainerStatus {
	return slices.DeleteFunc(slices.Clone(s.Containers), func(c *ContainerStatus) bool { return c.Name != name })
}

func (s *Status) ContainerIn(sandboxID, name string) *ContainerStatus {
	return s.newest(func(c *ContainerStatus) bool { return c.Name == name && c.SandboxID == sandboxID })
}

func (s *Status) newest(match func(*ContainerStatus) bool) *ContainerStatus {
	if s != nil {
		for _, c := range s.Containers {
			if match(c) {
				return c
			}
		}
	}
	return nil
}

// Started returns when the oldest remaining sandbox was created.
func (s *Status) Started() time.Time {
	if s == nil || len(s.Sandboxes) == 0 {
		return time.Time{}
	}
	return time.Unix(0, s.Sandboxes[len(s.Sandboxes)-1].GetCreatedAt())
}

// IsSidecar reports whether an init container is restartable. It keeps running while later containers run.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
