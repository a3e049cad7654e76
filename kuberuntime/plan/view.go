package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

type ContainerView struct {
	Container                *v1.Container
	Status                   *pod.ContainerStatus // newest attempt, or nil
	Init, Sidecar, Ephemeral bool
	Started, Ready           bool

	restarting bool // Status is from before the last restart of all containers
}

type View struct {
	Phase       v1.PodPhase
	Initialised bool // the init containers are done
	Started     bool // Initialised, and each regular container has been started
	Ready       bool
	Reason      string // reason of the pod's failure, as in the API
	Why         string // message for a failure that no container caused
	Containers  []ContainerView
}

// Observe derives phase and readiness, like the kubelet's generateAPIPodStatus.
func Observe(p *v1.Pod, all *pod.Status, probes Probes) *View {
	_, s, _ := sinceRestart(p, all)
	v := &View{Initialised: true, Started: true, Ready: true}
	init, regular := len(p.Spec.InitContainers), len(p.Spec.Containers)
	current := s.Sandbox().GetId()
	for i, c := range manifest.Containers(p) {
		view := ContainerView{Container: c, Status: all.Container(c.Name), Init: i < init, Ephemeral: i >= init+regular}
		view.restarting = view.Status != s.Container(c.Name)
		view.Sidecar = view.Init && pod.IsSidecar(c)
		view.observe(probes)
		v.Containers = append(v.Containers, view)
		switch {
		case view.Ephemeral:
		case view.Init:
			done := view.Started // a sidecar is done when it has started
			if !view.Sidecar {
				done = s.ContainerIn(current, c.Name).Succeeded()
			}
			v.Initialised = v.Initialised && done
			v.Ready = v.Ready && (view.Ready || !view.Sidecar)
		default:
			v.Started = v.Started && view.Status != nil && !view.Status.StartedAt.IsZero()
			v.Ready = v.Ready && view.Ready
		}
	}
	if mainsExist(p, s) {
		v.Initialised = true
	}
	v.Started = v.Started && v.Initialised
	v.Phase = phase(p, v)
	v.giveUp(p, all, probes)
	v.Ready = v.Ready && v.Phase == v1.PodRunning
	return v
}

// giveUp sets the phase of two kinds of pods to Failed, although their containers could restart or start: a Job's pod
// that exceeds its backoffLimit, and a pending pod that has lost its sandbox, has no running container, and gets no new
// sandbox, because its regular containers do not restart. The kubelet leaves the second pod pending.
func (v *View) giveUp(p *v1.Pod, s *pod.Status, probes Probes) {
	if why := pastBackoffLimit(p, s); why != "" && v.Phase != v1.PodSucceeded {
		v.Phase, v.Reason, v.Why = v1.PodFailed, BackoffLimitExceeded, why
	}
	if v.Phase != v1.PodPending || slices.ContainsFunc(s.Containers, (*pod.ContainerStatus).MayRun) {
		return
	}
	if a := Compute(p, s, probes); a.KillPod && !a.CreateSandbox {
		v.Phase, v.Why = v1.PodFailed, a.SandboxReason+" and no container restarts"
	}
}

// BackoffLimitExceeded is the Job controller's reason for a pod that has failed too often.
const BackoffLimitExceeded = "BackoffLimitExceeded"

func (c *ContainerView) observe(probes Probes) {
	if c.restarting {
		return
	}
	if !c.Status.Running() {
		// An init container is ready after it has succeeded.
		c.Ready = c.Init && !c.Sidecar && c.Status.Succeeded()
		return
	}
	c.Started = c.Container.StartupProbe == nil || probes.result(c.Status.ID, Startup) == Success
	c.Ready = (c.Sidecar || !c.Init) && c.Started && !c.Status.Paused() && (c.Container.ReadinessProbe == nil || probes.result(c.Status.ID, Readiness) == Success)
}

// phase derives the pod's phase from the states of its containers, like the kubelet's getPhase.
//
//nolint:gocyclo // the table of cases of the API's documentation
func phase(p *v1.Pod, v *View) v1.PodPhase {
	running, again, failed, waiting := 0, 0, 0, 0
	for _, c := range v.Containers {
		switch {
		case c.restarting && !c.Init:
			waiting++
		case c.restarting:
		case c.Init && !c.Sidecar && c.Status.Exited() && !c.Status.Succeeded() && !v.Initialised && !initRestarts(p, c.Container, c.Status):
			return v1.PodFailed
		case (c.Sidecar || !c.Init && !c.Ephemeral) && c.Status.Running():
			running++ // a running sidecar keeps the pod running after the regular containers have exited
		case c.Init, c.Ephemeral:
		case c.Status.Exited() && restartsAfter(p, c.Container, c.Status):
			again++
		case c.Status.Exited() && c.Status.ExitCode != 0:
			failed++
		case c.Status.Exited():
		default:
			waiting++
		}
	}
	switch {
	case waiting > 0:
		return v1.PodPending
	case running+again > 0:
		return v1.PodRunning
	case failed > 0:
		return v1.PodFailed
	}
	return v1.PodSucceeded
}
