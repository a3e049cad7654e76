package kuberuntime

import (
	"context"
	"math"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// untilDeadline is what is left of a pod's activeDeadlineSeconds; without one it never ends.
func (m *Manager) untilDeadline(p *v1.Pod, status *pod.Status) time.Duration {
	if p.Spec.ActiveDeadlineSeconds == nil {
		return math.MaxInt64
	}
	started := m.started(p, status)
	if started.IsZero() {
		return math.MaxInt64
	}
	return started.Add(time.Duration(*p.Spec.ActiveDeadlineSeconds) * time.Second).Sub(m.o.Now())
}

// started is when the pod's first sandbox was made, zero where it has none. The record knows of one
// that was replaced and collected; of a pod that the runtime lost altogether it knows nothing of use.
func (m *Manager) started(p *v1.Pod, status *pod.Status) time.Time {
	started := status.Started()
	if record, err := m.Record(string(p.UID)); err == nil && !record.Started.IsZero() && record.Started.Before(started) {
		return record.Started
	}
	return started
}

// outOfTime reports whether a pod did not end by itself before its deadline.
func (m *Manager) outOfTime(p *v1.Pod, status *pod.Status, view *plan.View) bool {
	if m.untilDeadline(p, status) > 0 {
		return false
	}
	at := m.started(p, status).Add(time.Duration(*p.Spec.ActiveDeadlineSeconds) * time.Second)
	for _, c := range view.Containers {
		if !c.Init && !c.Ephemeral && (!c.Status.Exited() || c.Status.FinishedAt.After(at)) {
			return true
		}
	}
	// All have ended in time: under these policies for good.
	return p.Spec.RestartPolicy == v1.RestartPolicyAlways
}

// endAtDeadline stops a pod that has run for as long as it may.
func (m *Manager) endAtDeadline(ctx context.Context, p *v1.Pod, status *pod.Status) SyncResult {
	result := SyncResult{Actions: &plan.Actions{KillPod: true, SandboxReason: "its active deadline has passed"}}
	if isDead(status) {
		return result
	}
	m.warn(p, "", EventDeadline, "the pod has run for its activeDeadlineSeconds of %d", *p.Spec.ActiveDeadlineSeconds)
	result.add(m.KillPod(ctx, p, status, nil))
	return result
}
