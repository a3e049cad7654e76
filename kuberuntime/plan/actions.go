// Package plan decides how to bring a pod to the state of its manifest: whether to replace the sandbox, which
// containers to kill and to start, and in what order. The decisions are the kubelet's. All functions are pure: their
// input is the manifest, the pod's status and the probe results.
package plan

import (
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Result is the last result of a container's probe.
type Result int

const (
	Unknown Result = iota // no probe, or no result yet
	Success
	Failure
)

type Kind string

const (
	Startup   Kind = "startup"
	Liveness  Kind = "liveness"
	Readiness Kind = "readiness"
)

// Probes returns the result of a container's probe. A nil Probes returns Unknown.
type Probes func(containerID string, kind Kind) Result

func (p Probes) result(containerID string, kind Kind) Result {
	if p == nil {
		return Unknown
	}
	return p(containerID, kind)
}

// Reason is the reason why a container is killed. After a failed probe, the probe's own grace period applies, if set.
type Reason string

const (
	ReasonChanged    Reason = "Changed"
	ReasonLiveness   Reason = "LivenessProbe"
	ReasonStartup    Reason = "StartupProbe"
	ReasonPostStart  Reason = "PostStartHook" // set when the hook fails, never planned
	reasonUnknown    Reason = "Unknown"
	reasonRestartAll Reason = "RestartAllContainers"
)

type Kill struct {
	Status  *pod.ContainerStatus
	Reason  Reason
	Message string
}

type Actions struct {
	KillPod       bool
	CreateSandbox bool
	SandboxID     string // the sandbox to keep or to replace
	Attempt       uint32
	SandboxReason string // why the sandbox is created or killed
	// SandboxChanged reports that the sandbox no longer fits. It is replaced, unless no container would start in the new one.
	SandboxChanged bool
	Restarts       int // how often all containers were restarted together in the sandbox
	Kill           []Kill
	// Indexes into the container lists of the manifest.
	StartInit, StartEphemeral, Start []int
}

func (a *Actions) Nothing() bool {
	return !a.KillPod && !a.CreateSandbox && len(a.Kill) == 0 && len(a.StartInit) == 0 && len(a.StartEphemeral) == 0 && len(a.Start) == 0
}

// Compute decides the actions of SyncPod, like the kubelet's computePodActions. The status may be slightly out of date.
// The next call then handles the change.
func Compute(p *v1.Pod, s *pod.Status, probes Probes) *Actions {
	if why := pastBackoffLimit(p, s); why != "" {
		return &Actions{KillPod: true, SandboxID: s.Sandbox().GetId(), SandboxReason: why}
	}
	restarts, since, old := sinceRestart(p, s)
	c := computation{pod: p, status: since, probes: probes, Actions: sandboxChanged(p, s)}
	if c.CreateSandbox {
		c.newSandbox()
		return c.Actions
	}
	c.Restarts = restarts
	if len(old) > 0 {
		for _, status := range old {
			c.Kill = append(c.Kill, Kill{Status: status, Reason: reasonRestartAll, Message: "all containers of the pod are restarted"})
		}
		return c.Actions
	}
	for i := range p.Spec.EphemeralContainers {
		if s.Container(p.Spec.EphemeralContainers[i].Name) == nil {
			c.StartEphemeral = append(c.StartEphemeral, i)
		}
	}
	if c.initContainers() {
		c.regularContainers()
	}
	return c.Actions
}

// BackoffLimit returns how often the containers of a Job's pod may restart. ok is false for a pod without a backoffLimit,
// and for a pod with restartPolicy Always.
func BackoffLimit(p *v1.Pod) (limit int, ok bool) {
	limit, err := strconv.Atoi(p.Annotations[pod.BackoffLimitAnnotation])
	return limit, err == nil && p.Spec.RestartPolicy != v1.RestartPolicyAlways
}

// RestartCount returns the restart count of the attempt that follows last. In a Job's pod, restarts for a new image do
// not count, because they are not failures.
func RestartCount(p *v1.Pod, last *pod.ContainerStatus) int {
	if _, job := BackoffLimit(p); job && last.Replaced {
		return last.RestartCount
	}
	return last.RestartCount + 1
}

// pastBackoffLimit returns why a Job's pod has exceeded its backoffLimit, or "" if it has not. Like the Job controller,
// it adds up the restarts of all containers. A failure of the newest attempt counts at once, before its restart.
//
// With restartPolicy Never, the Job controller counts failed pods. Here a restart of all containers together stands for
// a new pod and counts once. The restart counts of containers that never restart alone show these restarts, also those
// in older sandboxes. Restarts of a container alone, by its own policy or a rule, do not count.
func pastBackoffLimit(p *v1.Pod, s *pod.Status) string {
	limit, ok := BackoffLimit(p)
	if !ok {
		return ""
	}
	never := p.Spec.RestartPolicy == v1.RestartPolicyNever
	restarts, failed := 0, ""
	if never {
		restarts, _, _ = sinceRestart(p, s)
	}
	for _, c := range manifest.Containers(p)[:len(p.Spec.InitContainers)+len(p.Spec.Containers)] {
		last := s.Container(c.Name)
		if last == nil {
			continue
		}
		count := last.RestartCount
		if never && mayRestartAlone(p, c) {
			count = 0
		}
		restartsAlone := restartsAfter(p, c, last) && ruleFor(c, last.ExitCode) != v1.ContainerRestartRuleActionRestartAllContainers
		if last.Exited() && last.ExitCode != 0 && !last.Replaced && !(never && restartsAlone) {
			count++
			failed = fmt.Sprintf(", container %s ended with status %d", c.Name, last.ExitCode)
		}
		if never {
			restarts = max(restarts, count)
		} else {
			restarts += count
		}
	}
	if restarts <= limit {
		return ""
	}
	return fmt.Sprintf("its containers failed more often than the backoffLimit of %d%s", limit, failed)
}

type computation struct {
	pod    *v1.Pod
	status *pod.Status
	probes Probes
	*Actions
}

// sandboxChanged decides whether the pod needs a new sandbox, and its attempt number, like the kubelet's
// podSandboxChanged.
func sandboxChanged(p *v1.Pod, s *pod.Status) *Actions {
	newest := s.Sandbox()
	if newest == nil {
		return &Actions{KillPod: true, CreateSandbox: true, SandboxReason: "the pod has no sandbox"}
	}
	ready := 0
	for _, sandbox := range s.Sandboxes {
		if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	network := runtimeapi.NamespaceMode_POD
	if p.Spec.HostNetwork {
		network = runtimeapi.NamespaceMode_NODE
	}
	a := &Actions{SandboxID: newest.GetId(), Attempt: newest.GetMetadata().GetAttempt()}
	switch {
	case ready > 1:
		a.SandboxReason = "the pod has several ready sandboxes"
	case newest.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		a.SandboxReason = "the sandbox is not ready"
	case newest.GetLinux().GetNamespaces().GetOptions().GetNetwork() != network:
		a.SandboxReason = "the pod's network namespace has changed"
	case !p.Spec.HostNetwork && newest.GetNetwork() != nil && newest.GetNetwork().GetIp() == "":
		a.SandboxReason = "the sandbox has no address"
	default:
		return a
	}
	a.KillPod, a.CreateSandbox, a.SandboxChanged = true, true, true
	a.Attempt++
	return a
}

// newSandbox decides whether to create a sandbox, and which containers to start in it.
func (c computation) newSandbox() {
	spec := &c.pod.Spec
	restartable := func(container v1.Container) bool { return Restartable(c.pod, &container) }
	if c.Attempt != 0 && len(c.status.Containers) > 0 && !slices.ContainsFunc(spec.Containers, restartable) {
		c.CreateSandbox = false
		return
	}
	existed := false // a regular container existed, so the init containers had succeeded
	for i := range spec.Containers {
		container := &spec.Containers[i]
		last := c.status.Container(container.Name)
		existed = existed || last != nil
		if !last.Exited() || restartsAfter(c.pod, container, last) {
			c.Start = append(c.Start, i)
		}
	}
	switch {
	case len(c.Start) == 0 && existed:
		c.CreateSandbox = false
	case len(spec.InitContainers) > 0:
		c.StartInit, c.Start = []int{0}, nil
	}
}

// initContainers decides which init containers to start and reports whether all are done, like the kubelet's
// computeInitContainerActions. Only containers of the current sandbox count: in a new sandbox all init containers run
// again.
func (c computation) initContainers() bool {
	list := c.pod.Spec.InitContainers
	// The last init container that was created in the sandbox, even if its start failed; -1 without such a container, and
	// len(list) if a regular container was created.
	reached := len(list)
	if !mainsExist(c.pod, c.status) {
		reached--
		for reached >= 0 && c.initStatus(reached) == nil {
			reached--
		}
	}
	for i := range reached {
		if pod.IsSidecar(&list[i]) {
			c.sidecar(i)
		}
	}
	if reached == len(list) {
		return true
	}
	if reached >= 0 && !c.initDone(reached) {
		return false
	}
	if reached < len(list)-1 {
		c.StartInit = append(c.StartInit, reached+1)
		return false
	}
	return true
}

func (c computation) initStatus(i int) *pod.ContainerStatus {
	return c.status.ContainerIn(c.SandboxID, c.pod.Spec.InitContainers[i].Name)
}

// mainsExist reports whether a regular container was created in the current sandbox. If so, the init containers had
// succeeded before.
func mainsExist(p *v1.Pod, s *pod.Status) bool {
	current := s.Sandbox().GetId()
	return slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return s.ContainerIn(current, c.Name) != nil })
}

// initDone reports whether the init containers after i may start. It plans a restart of i if i must run again, and the
// stop of the pod if i has failed and does not restart.
func (c computation) initDone(i int) bool {
	container, status := &c.pod.Spec.InitContainers[i], c.initStatus(i)
	switch {
	case pod.IsSidecar(container):
		return c.sidecar(i)
	case status.Running():
		return false
	case status.Succeeded():
		return true
	case status.State != runtimeapi.ContainerState_CONTAINER_CREATED && !initRestarts(c.pod, container, status):
		c.KillPod, c.StartInit = true, nil
		c.SandboxReason = "init container " + container.Name + " failed"
		return false
	}
	// Creation and start are one step here. An init container in state CREATED comes from a failed start.
	c.StartInit = append(c.StartInit, i)
	c.killUnknown(container, status)
	return false
}

// sidecar reports whether a sidecar runs and its startup probe, if any, has succeeded. It plans a start if the sidecar does
// not run, and a kill if its image has changed or a probe has failed.
func (c computation) sidecar(i int) bool {
	container, status := &c.pod.Spec.InitContainers[i], c.initStatus(i)
	if !status.Running() {
		c.StartInit = append(c.StartInit, i)
		c.killUnknown(container, status)
		return false
	}
	if kill, restart := c.verdict(container, status); kill != nil {
		c.Kill = append(c.Kill, *kill)
		if restart {
			c.StartInit = append(c.StartInit, i)
		}
		return false
	}
	return container.StartupProbe == nil || c.probes.result(status.ID, Startup) == Success
}

func (c computation) regularContainers() {
	kept := 0
	for i := range c.pod.Spec.Containers {
		container := &c.pod.Spec.Containers[i]
		status := c.status.Container(container.Name)
		if !status.Running() {
			if ShouldRestart(c.pod, container, status) {
				c.Start = append(c.Start, i)
				c.killUnknown(container, status)
			}
			continue
		}
		kill, restart := c.verdict(container, status)
		if kill == nil {
			kept++
			continue
		}
		switch {
		case restart:
			c.Start = append(c.Start, i)
		case mayRestartAll(container):
			kept++
		}
		c.Kill = append(c.Kill, *kill)
	}
	if kept == 0 && len(c.Start) == 0 { // sidecars alone do not keep a pod alive
		c.KillPod, c.StartInit = true, nil
		c.SandboxReason = "the main containers have ended"
	}
}

func (c computation) killUnknown(container *v1.Container, status *pod.ContainerStatus) {
	if status.Unknown() {
		c.Kill = append(c.Kill, Kill{Status: status, Reason: reasonUnknown,
			Message: fmt.Sprintf("container %s is in an unknown state", container.Name)})
	}
}

// verdict returns why a running container must be killed, or nil, and whether to start it again in the same step. A
// changed image restarts the container under any restart policy. After a failed probe, a container with a rule that
// restarts all containers is only killed: the next Compute decides by its exit code what to restart.
func (c computation) verdict(container *v1.Container, status *pod.ContainerStatus) (*Kill, bool) {
	restart := Restartable(c.pod, container) && !mayRestartAll(container)
	kill := &Kill{Status: status}
	switch {
	case status.Hash != pod.ContainerHash(container):
		kill.Reason, kill.Message, restart = ReasonChanged, fmt.Sprintf("container %s has a new definition", container.Name), true
	case c.probes.result(status.ID, Liveness) == Failure:
		kill.Reason, kill.Message = ReasonLiveness, fmt.Sprintf("container %s failed its liveness probe", container.Name)
	case c.probes.result(status.ID, Startup) == Failure:
		kill.Reason, kill.Message = ReasonStartup, fmt.Sprintf("container %s failed its startup probe", container.Name)
	default:
		return nil, false
	}
	if restart {
		kill.Message += ", it will be restarted"
	}
	return kill, restart
}
