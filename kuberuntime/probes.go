package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
)

// probes is what the probes say at the moment.
func (m *Manager) probes() plan.Probes { return m.prober.Result }

// probeExec tells what a command found out from a runtime that did not run it.
func (m *Manager) probeExec(ctx context.Context, id string, cmd []string, timeout time.Duration) error {
	out, err := m.RunInContainer(ctx, id, cmd, timeout)
	var exit *ExitError
	if err == nil || errors.As(err, &exit) || errors.Is(err, ErrTimeout) {
		return describeExit(out, err)
	}
	return &probe.UnknownError{Err: err}
}

// probeChanged turns a probe's news into events and wakes whoever waits for them.
func (m *Manager) probeChanged(c probe.Change) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.Container.PodName, Namespace: c.Container.PodNamespace, UID: types.UID(c.Container.PodUID)}}
	var unknown *probe.UnknownError
	switch {
	case errors.As(c.Err, &unknown):
		m.warn(p, c.Container.Name, EventUnhealthy, "%s probe has no result: %v", c.Kind, c.Err)
	case c.Err != nil:
		m.warn(p, c.Container.Name, EventUnhealthy, "%s probe failed: %v", c.Kind, c.Err)
	}
	if !c.Verdict {
		return
	}
	select {
	case m.changed <- struct{}{}:
	default:
	}
}

// WatchProbes starts the probes of a pod's running containers, and ends those of the
// containers that run no more.
func (m *Manager) WatchProbes(p *v1.Pod, status *pod.Status) {
	running := map[string]bool{}
	for _, c := range manifest.Containers(p) {
		state := status.Container(c.Name)
		if !state.Running() {
			continue
		}
		running[state.ID] = true
		m.prober.Watch(probe.Container{
			Target: probe.Target{ContainerID: state.ID, PodIP: cmp.Or(status.IPs...), Ports: c.Ports},
			PodUID: string(p.UID), PodName: p.Name, PodNamespace: p.Namespace, Name: c.Name, Started: state.StartedAt,
			Startup: c.StartupProbe, Liveness: c.LivenessProbe, Readiness: c.ReadinessProbe,
		})
	}
	m.prober.Keep(string(p.UID), running)
}

// View is a pod's phase and readiness as the manager knows them now.
func (m *Manager) View(p *v1.Pod, status *pod.Status) *plan.View {
	return m.view(p, status, m.probes())
}

func (m *Manager) view(p *v1.Pod, status *pod.Status, probes plan.Probes) *plan.View {
	view := plan.Observe(p, status, probes)
	if m.outOfTime(p, status, view) {
		view.Phase, view.Ready, view.Why = v1.PodFailed, false, "it has run for its activeDeadlineSeconds"
	}
	return view
}
