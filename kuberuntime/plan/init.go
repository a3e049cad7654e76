package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

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
