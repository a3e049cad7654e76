package kuberuntime

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/plan"
)

// showWaiting puts into a pod's status why containers do not start, as a kubelet does, and
// returns it by name. The runtime does not know it: the events that were kept do. What ended
// and is to start again waits; its end is the last state.
func showWaiting(p *v1.Pod, view *plan.View, events []Event) map[string]v1.ContainerStateWaiting {
	out := map[string]v1.ContainerStateWaiting{}
	statuses := slices.Concat(refs(p.Status.InitContainerStatuses), refs(p.Status.ContainerStatuses), refs(p.Status.EphemeralContainerStatuses))
	for _, s := range statuses {
		i := slices.IndexFunc(view.Containers, func(c plan.ContainerView) bool { return c.Container.Name == s.Name })
		if i < 0 {
			continue
		}
		if why := lastWait(events, s.Name); why != nil && startsAgain(p, view.Containers[i]) {
			if s.State.Terminated != nil {
				s.LastTerminationState = s.State
			}
			s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why.Waiting, Message: why.Message}}
		}
		if s.State.Waiting != nil && s.State.Waiting.Reason != "" {
			out[s.Name] = *s.State.Waiting
		}
	}
	return out
}

func refs[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

// lastWait is the event that says why a container does not start, nil if it was started or
// got further since.
func lastWait(events []Event, name string) *Event {
	for i, e := range slices.Backward(events) {
		if e.Container != name {
			continue
		}
		if e.Waiting != "" {
			return &events[i]
		}
		switch e.Reason {
		case EventPulled, EventCreated, EventStarted:
			return nil
		}
	}
	return nil
}

func startsAgain(p *v1.Pod, c plan.ContainerView) bool {
	switch {
	case c.Status.Running():
		return false
	case c.Ephemeral:
		return c.Status == nil
	case c.Sidecar:
		return true
	case c.Init && c.Status.Exited():
		return !c.Status.Succeeded() && p.Spec.RestartPolicy != v1.RestartPolicyNever
	}
	return plan.ShouldRestart(p, c.Status)
}
