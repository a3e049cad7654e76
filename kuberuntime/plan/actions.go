// Package plan decides what has to happen to a pod so that the runtime has what its
// manifest says: whether the sandbox must be made again, which containers are killed and
// which are started, and in what order. The decisions are the kubelet's. All functions are
// pure: they see the manifest, the state and the probe results, and touch nothing.
package plan

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Result is what a probe last said about a container.
type Result int

// The results of a probe.
const (
	Unknown Result = iota // no probe, or no verdict yet
	Success
	Failure
)

// Kind is one of the three probes of a container.
type Kind string

// The kinds.
const (
	Startup   Kind = "startup"
	Liveness  Kind = "liveness"
	Readiness Kind = "readiness"
)

// Probes answers for containers by id. nil knows nothing.
type Probes func(containerID string, kind Kind) Result

func (p Probes) result(containerID string, kind Kind) Result {
	if p == nil {
		return Unknown
	}
	return p(containerID, kind)
}

// Reason is a word for why a container is killed; probes have a grace period of their own.
type Reason string

// The reasons.
const (
	ReasonChanged  Reason = "Changed"
	ReasonLiveness Reason = "LivenessProbe"
	ReasonStartup  Reason = "StartupProbe"
	ReasonUnknown  Reason = "Unknown"
)

// Kill is a container to kill.
type Kill struct {
	Status    *pod.ContainerStatus
	Container *v1.Container
	Reason    Reason
	Message   string
}

// Actions is what SyncPod has to do.
type Actions struct {
	KillPod       bool
	CreateSandbox bool
	SandboxID     string // the sandbox to keep, or the one that is replaced
	Attempt       uint32
	SandboxReason string // why it is created or killed
	Kill          []Kill
	// Indexes into the manifest's lists.
	StartInit, StartEphemeral, Start []int
}

// Nothing reports whether there is nothing to do.
func (a *Actions) Nothing() bool {
	return !a.KillPod && !a.CreateSandbox && len(a.Kill) == 0 && len(a.StartInit) == 0 && len(a.StartEphemeral) == 0 && len(a.Start) == 0
}

// Compute decides. It may be called with a status that is out of date by one change of the
// runtime: what it then misses, the next call sees.
func Compute(p *v1.Pod, s *pod.Status, probes Probes) *Actions {
	a := sandboxActions(p, s)
	if a.CreateSandbox {
		fresh(p, s, a)
		return a
	}
	for i := range p.Spec.EphemeralContainers {
		if s.Container(p.Spec.EphemeralContainers[i].Name) == nil {
			a.StartEphemeral = append(a.StartEphemeral, i)
		}
	}
	initialised := initActions(p, s, probes, a)
	if a.KillPod || !initialised {
		return a
	}
	regularActions(p, s, probes, a)
	return a
}

// sandboxActions decides whether the pod needs a new sandbox, and with which attempt.
func sandboxActions(p *v1.Pod, s *pod.Status) *Actions {
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
	case !p.Spec.HostNetwork && newest.GetNetwork().GetIp() == "":
		a.SandboxReason = "the sandbox has no address"
	default:
		return a
	}
	a.KillPod, a.CreateSandbox = true, true
	a.Attempt++
	return a
}

// fresh decides what a new sandbox starts with, and whether there is to be one at all.
func fresh(p *v1.Pod, s *pod.Status, a *Actions) {
	if p.Spec.RestartPolicy == v1.RestartPolicyNever && a.Attempt != 0 && len(s.Containers) > 0 {
		a.CreateSandbox = false
		return
	}
	for i := range p.Spec.Containers {
		last := s.Container(p.Spec.Containers[i].Name)
		if p.Spec.RestartPolicy == v1.RestartPolicyOnFailure && last.Exited() && last.ExitCode == 0 {
			continue
		}
		a.Start = append(a.Start, i)
	}
	// A regular container that ever existed came after the init containers.
	existed := func(c v1.Container) bool { return s.Container(c.Name) != nil }
	if len(a.Start) == 0 && slices.ContainsFunc(p.Spec.Containers, existed) {
		a.CreateSandbox = false
		return
	}
	if len(p.Spec.InitContainers) > 0 {
		a.StartInit, a.Start = []int{0}, nil
	}
}

func regularActions(p *v1.Pod, s *pod.Status, probes Probes, a *Actions) {
	kept := 0
	for i := range p.Spec.Containers {
		c := &p.Spec.Containers[i]
		status := s.Container(c.Name)
		if !status.Running() {
			if ShouldRestart(p, status) {
				a.Start = append(a.Start, i)
				a.killUnknown(c, status)
			}
			continue
		}
		kill, restart := verdict(p, c, status, probes)
		if kill == nil {
			kept++
			continue
		}
		if restart {
			a.Start = append(a.Start, i)
		}
		a.Kill = append(a.Kill, *kill)
	}
	if kept == 0 && len(a.Start) == 0 {
		// Sidecars alone do not keep a pod alive.
		a.KillPod = true
		a.SandboxReason = "the main containers have ended"
		a.StartInit = nil
	}
}

func (a *Actions) killUnknown(c *v1.Container, status *pod.ContainerStatus) {
	if status != nil && status.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
		a.Kill = append(a.Kill, Kill{Status: status, Container: c, Reason: ReasonUnknown,
			Message: fmt.Sprintf("container %s is in an unknown state", c.Name)})
	}
}

// verdict reports whether a running container must go, and whether it then starts again. A
// changed image restarts it whatever the policy says.
func verdict(p *v1.Pod, c *v1.Container, status *pod.ContainerStatus, probes Probes) (*Kill, bool) {
	restart := p.Spec.RestartPolicy != v1.RestartPolicyNever || pod.IsSidecar(c)
	kill := &Kill{Status: status, Container: c}
	switch {
	case status.Hash != pod.ContainerHash(c):
		kill.Reason, kill.Message, restart = ReasonChanged, fmt.Sprintf("container %s has a new definition", c.Name), true
	case probes.result(status.ID, Liveness) == Failure:
		kill.Reason, kill.Message = ReasonLiveness, fmt.Sprintf("container %s failed its liveness probe", c.Name)
	case probes.result(status.ID, Startup) == Failure:
		kill.Reason, kill.Message = ReasonStartup, fmt.Sprintf("container %s failed its startup probe", c.Name)
	default:
		return nil, false
	}
	if restart {
		kill.Message += ", it will be restarted"
	}
	return kill, restart
}

// ShouldRestart reports whether a container that does not run is to be started.
func ShouldRestart(p *v1.Pod, status *pod.ContainerStatus) bool {
	switch {
	case p.DeletionTimestamp != nil:
		return false
	case status == nil:
		return true
	case status.Running():
		return false
	case status.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN, status.State == runtimeapi.ContainerState_CONTAINER_CREATED:
		return true
	case p.Spec.RestartPolicy == v1.RestartPolicyNever:
		return false
	case p.Spec.RestartPolicy == v1.RestartPolicyOnFailure:
		return status.ExitCode != 0
	}
	return true
}

// initActions decides about the init containers and reports whether they are all done. Only
// containers of the current sandbox count: a new sandbox begins at the first again.
func initActions(p *v1.Pod, s *pod.Status, probes Probes, a *Actions) bool {
	list := p.Spec.InitContainers
	if len(list) == 0 {
		return true
	}
	w := initWalk{pod: p, status: s, probes: probes, actions: a}
	if mainsExist(p, s) {
		w.keepSidecars(len(list))
		return true
	}
	reached := w.reached()
	if reached < 0 {
		a.StartInit = append(a.StartInit, 0)
		return false
	}
	w.keepSidecars(reached)
	if !w.done(reached) {
		return false
	}
	if reached == len(list)-1 {
		return true
	}
	a.StartInit = append(a.StartInit, reached+1)
	return false
}

// mainsExist reports whether a regular container was created or runs; those that have ended
// do not tell, they may be of an earlier sandbox.
func mainsExist(p *v1.Pod, s *pod.Status) bool {
	return slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool {
		status := s.Container(c.Name)
		return status.Running() || status != nil && status.State == runtimeapi.ContainerState_CONTAINER_CREATED
	})
}

type initWalk struct {
	pod     *v1.Pod
	status  *pod.Status
	probes  Probes
	actions *Actions
}

func (w initWalk) state(i int) *pod.ContainerStatus {
	return w.status.ContainerIn(w.actions.SandboxID, w.pod.Spec.InitContainers[i].Name)
}

// reached is the last init container that was ever started in this sandbox, or -1.
func (w initWalk) reached() int {
	for i := len(w.pod.Spec.InitContainers) - 1; i >= 0; i-- {
		if w.state(i) != nil {
			return i
		}
	}
	return -1
}

// keepSidecars restarts the sidecars before an index that do not run as they should.
func (w initWalk) keepSidecars(before int) {
	for i := range before {
		if pod.IsSidecar(&w.pod.Spec.InitContainers[i]) {
			w.sidecar(i)
		}
	}
}

// done reports whether the init containers after i may start, and restarts i if it must run
// again.
func (w initWalk) done(i int) bool {
	c, status := &w.pod.Spec.InitContainers[i], w.state(i)
	if pod.IsSidecar(c) {
		return w.sidecar(i)
	}
	switch {
	case status.Running():
		return false
	case status.State == runtimeapi.ContainerState_CONTAINER_CREATED:
		// Creating and starting are one step for us: this one could not be started.
		w.actions.StartInit = append(w.actions.StartInit, i)
		return false
	case status.Succeeded():
		return true
	case w.pod.Spec.RestartPolicy == v1.RestartPolicyNever:
		w.actions.KillPod = true
		w.actions.SandboxReason = "init container " + c.Name + " failed"
		w.actions.StartInit = nil
		return false
	}
	w.actions.StartInit = append(w.actions.StartInit, i)
	w.actions.killUnknown(c, status)
	return false
}

// sidecar reports whether a sidecar has started, and (re)starts it if it does not run.
func (w initWalk) sidecar(i int) bool {
	c, status := &w.pod.Spec.InitContainers[i], w.state(i)
	if !status.Running() {
		w.actions.StartInit = append(w.actions.StartInit, i)
		w.actions.killUnknown(c, status)
		return false
	}
	if kill, _ := verdict(w.pod, c, status, w.probes); kill != nil {
		w.actions.Kill = append(w.actions.Kill, *kill)
		w.actions.StartInit = append(w.actions.StartInit, i)
		return false
	}
	return c.StartupProbe == nil || w.probes.result(status.ID, Startup) == Success
}
