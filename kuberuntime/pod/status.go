package pod

import (
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Pod is a pod as lists of the runtime show it, whether its manifest is known or not.
type Pod struct {
	UID, Name, Namespace string
	Sandboxes            []*runtimeapi.PodSandbox
	Containers           []*runtimeapi.Container
}

// FullName is "namespace/name".
func (p *Pod) FullName() string { return p.Namespace + "/" + p.Name }

// Status is the state of one pod. Sandboxes and containers are sorted, the newest first.
type Status struct {
	UID, Name, Namespace string
	IPs                  []string
	Sandboxes            []*runtimeapi.PodSandboxStatus
	Containers           []*ContainerStatus
	At                   time.Time
}

// ContainerStatus is the state of one container of a pod, one attempt of it.
type ContainerStatus struct {
	ID, Name, SandboxID              string
	State                            runtimeapi.ContainerState
	CreatedAt, StartedAt, FinishedAt time.Time
	ExitCode                         int
	Image, ImageRef                  string
	Hash                             uint64
	RestartCount                     int
	Reason, Message                  string
	LogPath                          string
	Labels, Annotations              map[string]string
	Mounts                           []*runtimeapi.Mount
	Resources                        *runtimeapi.ContainerResources
}

// Running reports whether the container runs.
func (c *ContainerStatus) Running() bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// Exited reports whether the container ran to its end.
func (c *ContainerStatus) Exited() bool {
	return c != nil && c.State == runtimeapi.ContainerState_CONTAINER_EXITED
}

// OOMKilled is the runtimes' reason for the end of a container that used too much memory. The
// kernel may kill a child only, and the container then ends with 0.
const OOMKilled = "OOMKilled"

// Succeeded reports whether the container did what it is for, as the kubelet sees it of
// init containers.
func (c *ContainerStatus) Succeeded() bool {
	return c.Exited() && c.ExitCode == 0 && c.Reason != OOMKilled
}

// Sandbox is the newest sandbox or nil.
func (s *Status) Sandbox() *runtimeapi.PodSandboxStatus {
	if s == nil || len(s.Sandboxes) == 0 {
		return nil
	}
	return s.Sandboxes[0]
}

// Container is the newest attempt of a container, or nil.
func (s *Status) Container(name string) *ContainerStatus {
	return s.newest(func(c *ContainerStatus) bool { return c.Name == name })
}

// LastEnded is the newest attempt of a container that has ended, or nil.
func (s *Status) LastEnded(name string) *ContainerStatus {
	return s.newest(func(c *ContainerStatus) bool { return c.Name == name && c.Exited() })
}

// ContainerIn is the newest attempt of a container inside one sandbox, or nil.
func (s *Status) ContainerIn(sandboxID, name string) *ContainerStatus {
	return s.newest(func(c *ContainerStatus) bool { return c.Name == name && c.SandboxID == sandboxID })
}

func (s *Status) newest(wanted func(*ContainerStatus) bool) *ContainerStatus {
	if s == nil {
		return nil
	}
	if i := slices.IndexFunc(s.Containers, wanted); i >= 0 {
		return s.Containers[i]
	}
	return nil
}

// Started is when the oldest sandbox that the runtime has was made.
func (s *Status) Started() time.Time {
	if s == nil || len(s.Sandboxes) == 0 {
		return time.Time{}
	}
	return time.Unix(0, s.Sandboxes[len(s.Sandboxes)-1].CreatedAt)
}

// IsSidecar reports whether an init container is one that runs beside the others.
func IsSidecar(c *v1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways
}
