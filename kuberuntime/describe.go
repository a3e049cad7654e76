package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
	"github.com/crishim/crishim/logfile"
)

// Description is all that is known of a pod from here.
type Description struct {
	Pod      *v1.Pod     `json:"pod"` // with its status
	Status   *pod.Status `json:"-"`
	View     *plan.View  `json:"-"`
	Recorded bool        `json:"recorded"` // the manifest is known, not only what runs
	Events   []Event     `json:"events"`
	// Logs are the last lines of containers that failed, by name.
	Logs map[string][]string `json:"logs,omitempty"`
	// Waiting says of containers that are to start why they do not, by name; the pod's status
	// has it too.
	Waiting map[string]v1.ContainerStateWaiting `json:"-"`
}

// lastLines of a failed container's log are shown.
const lastLines = 10

// Describe gathers a pod. Of a pod that was not made here the manifest is put together
// from the containers that there are.
func (m *Manager) Describe(ctx context.Context, p *pod.Pod) (*Description, error) {
	status, err := m.GetPodStatus(ctx, p.UID, p.Name, p.Namespace)
	if err != nil {
		return nil, err
	}
	d := &Description{Status: status, Logs: map[string][]string{}}
	record, err := m.Record(p.UID)
	switch {
	case err == nil:
		d.Recorded, d.Pod = true, record.Pod
	case errors.Is(err, ErrNoRecord):
		d.Pod = guessedPod(status)
	default:
		return nil, err
	}
	d.View = m.view(d.Pod, status, m.probeOnce(ctx, d.Pod, status))
	d.Pod = m.APIPod(d.Pod, d.View, status)
	if d.Events, err = ReadEvents(m.o.Dirs, p.UID); err != nil {
		return nil, err
	}
	d.Waiting = showWaiting(d.Pod, d.View, d.Events)
	for _, c := range d.View.Containers {
		if failed := lastFailure(status, c.Container.Name); failed != nil {
			if lines := logfile.LastLines(failed.LogPath, lastLines, maxLogMessage); len(lines) > 0 {
				d.Logs[c.Container.Name] = lines
			}
		}
	}
	return d, nil
}

// probeOnce makes one attempt of each startup and readiness probe: a process that shows a
// pod has not followed it.
func (m *Manager) probeOnce(ctx context.Context, p *v1.Pod, status *pod.Status) plan.Probes {
	passed := map[string]bool{}
	for _, c := range manifest.Containers(p) {
		state := status.Container(c.Name)
		if !state.Running() {
			continue
		}
		target := probe.Target{ContainerID: state.ID, PodIP: cmp.Or(status.IPs...), Ports: c.Ports}
		for kind, handler := range map[plan.Kind]*v1.Probe{plan.Startup: c.StartupProbe, plan.Readiness: c.ReadinessProbe} {
			passed[state.ID+string(kind)] = handler != nil && probe.Run(ctx, handler, target, m.probeExec) == nil
		}
	}
	return func(id string, kind plan.Kind) plan.Result {
		if passed[id+string(kind)] {
			return plan.Success
		}
		return plan.Unknown
	}
}

// lastFailure is the newest attempt of a container that ended badly, if its newest two
// have one.
func lastFailure(status *pod.Status, name string) *pod.ContainerStatus {
	seen := 0
	for _, c := range status.Containers {
		if c.Name != name {
			continue
		}
		if c.Exited() && c.ExitCode != 0 {
			return c
		}
		if seen++; seen == 2 {
			break
		}
	}
	return nil
}

// guessedPod is a manifest from what runs: names, images, mounts' and probes' absence are
// not the pod's own words.
func guessedPod(status *pod.Status) *v1.Pod {
	p := restoredPod(status)
	p.ObjectMeta = metav1.ObjectMeta{Name: status.Name, Namespace: status.Namespace, UID: types.UID(status.UID)}
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	if sandbox := status.Sandbox(); sandbox != nil {
		p.Labels, p.Annotations = map[string]string{}, sandbox.GetAnnotations()
		for key, value := range sandbox.GetLabels() {
			if !slices.Contains([]string{kube.LabelPodName, kube.LabelPodNamespace, kube.LabelPodUID, kube.LabelContainerName}, key) {
				p.Labels[key] = value
			}
		}
		p.Spec.HostNetwork = sandbox.GetLinux().GetNamespaces().GetOptions().GetNetwork().String() == "NODE"
	}
	seen := map[string]bool{}
	for i := len(status.Containers) - 1; i >= 0; i-- {
		c := status.Containers[i]
		if seen[c.Name] {
			continue
		}
		seen[c.Name] = true
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name, Image: status.Container(c.Name).Image})
	}
	return p
}
