package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
)

type Description struct {
	Pod      *v1.Pod     `json:"pod"` // with its status
	Status   *pod.Status `json:"-"`
	View     *plan.View  `json:"-"`
	Recorded bool        `json:"recorded"` // the manifest is known, not guessed from containers
	Managed  bool        `json:"managed"`  // sync or apply runs the pod's probes and restarts its containers
	Events   []Event     `json:"events"`
	// Logs are the last lines of failed containers, by name.
	Logs map[string][]string `json:"logs,omitempty"`
	// State is the pod's recorded state; nil if no process ever managed the pod.
	State *PodState `json:"-"`
	// Waiting has the reason why each container does not start, by name. It is also in the pod's status.
	Waiting map[string]v1.ContainerStateWaiting `json:"-"`
	// Unready has the last probe failure of each container, by name.
	Unready map[string]string `json:"-"`
	// Unread is the reason why some events are missing.
	Unread error `json:"-"`
}

const lastLines = 10

// KnownPods lists the pods of the runtime, and recorded pods without a sandbox or container, for example because the
// sandbox cannot be created.
func (m *Manager) KnownPods(ctx context.Context) ([]*pod.Pod, error) {
	pods, err := m.GetPods(ctx, true)
	if err != nil {
		return nil, err
	}
	uids, err := listDir(m.o.Dirs.Pods())
	for _, uid := range uids {
		if slices.ContainsFunc(pods, func(p *pod.Pod) bool { return p.UID == uid }) {
			continue
		}
		if record, own := m.ownRecord(ctx, uid); own {
			pods = append(pods, &pod.Pod{UID: uid, Name: record.Pod.Name, Namespace: record.Pod.Namespace})
		}
	}
	return pods, err
}

// Describe describes a pod. If the pod has no record on this host, its manifest is guessed from its containers.
func (m *Manager) Describe(ctx context.Context, p *pod.Pod) (*Description, error) {
	status, err := m.StatusOf(ctx, p)
	if err != nil {
		return nil, err
	}
	d := &Description{Status: status, Logs: map[string][]string{}, Unready: map[string]string{}}
	record, err := m.Record(p.UID)
	switch {
	case err == nil:
		d.Recorded, d.Pod = true, record.Pod
	case errors.Is(err, errNoRecord):
		d.Pod = guessedPod(status)
	default:
		return nil, err
	}
	var sandboxes []string
	for _, s := range status.Sandboxes {
		sandboxes = append(sandboxes, s.GetId())
	}
	if state, err := ReadState(m.o.Dirs, p.UID, sandboxes...); err == nil { // if the state is unreadable, the rest is still shown
		d.State = state
	}
	d.Managed = d.State != nil && d.State.Managed
	var unread error
	d.Events, unread = podEvents(m.o.Dirs, p.UID)
	stops, err := m.stops()
	d.Unread = errors.Join(unread, err)
	for _, e := range stops {
		if slices.ContainsFunc(status.Containers, func(c *pod.ContainerStatus) bool { return c.ID == e.ID }) {
			d.Events = append(d.Events, e)
		}
	}
	probes := d.State.probes
	if d.Managed {
		for _, e := range d.Events {
			switch e.Reason {
			case EventUnhealthy:
				d.Unready[e.Container] = e.Message
			case EventStarted:
				delete(d.Unready, e.Container)
			}
		}
	} else {
		probes = m.probeOnce(ctx, d)
	}
	d.State.markReplaced(status)
	d.View = m.view(d.Pod, status, probes, d.State)
	d.Pod = m.APIPod(d.Pod, d.View, status)
	d.Waiting = showWaiting(d.Pod, d.View, d.Events)
	for _, c := range d.View.Containers {
		attempts := status.Attempts(c.Container.Name)
		failed := slices.IndexFunc(attempts[:min(len(attempts), 2)], func(c *pod.ContainerStatus) bool { return c.Exited() && c.ExitCode != 0 })
		if failed < 0 {
			continue
		}
		if lines := logfile.LastLines(attempts[failed].LogPath, lastLines, maxLogMessage); len(lines) > 0 {
			d.Logs[c.Container.Name] = lines
		}
	}
	return d, nil
}

// probeOnce runs each startup and readiness probe of an unmanaged pod once.
func (m *Manager) probeOnce(ctx context.Context, d *Description) plan.Probes {
	passed := map[string]bool{}
	for _, c := range manifest.Containers(d.Pod) {
		state := d.Status.Container(c.Name)
		if !state.Running() {
			continue
		}
		target := probe.Target{ContainerID: state.ID, PodIP: cmp.Or(d.Status.IPs...), Ports: c.Ports}
		for _, one := range []struct {
			kind    plan.Kind
			handler *v1.Probe
		}{{plan.Readiness, c.ReadinessProbe}, {plan.Startup, c.StartupProbe}} {
			if one.handler == nil {
				continue
			}
			err := probe.Run(ctx, one.handler, target, m.probeExec)
			if passed[state.ID+string(one.kind)] = err == nil; err != nil {
				d.Unready[c.Name] = fmt.Sprintf("%s probe failed: %v", one.kind, err)
			}
		}
	}
	return func(id string, kind plan.Kind) plan.Result {
		if passed[id+string(kind)] {
			return plan.Success
		}
		return plan.Unknown
	}
}

// guessedPod returns a manifest of the running containers. Mounts and probes cannot be guessed.
func guessedPod(status *pod.Status) *v1.Pod {
	p := restoredPod(status)
	p.DeletionGracePeriodSeconds = nil
	p.Spec.RestartPolicy = v1.RestartPolicyAlways
	if sandbox := status.Sandbox(); sandbox != nil {
		p.Labels, p.Annotations = maps.Clone(sandbox.GetLabels()), sandbox.GetAnnotations()
		for _, key := range []string{kube.LabelPodName, kube.LabelPodNamespace, kube.LabelPodUID, kube.LabelContainerName} {
			delete(p.Labels, key)
		}
		p.Spec.HostNetwork = sandbox.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE
	}
	for _, c := range slices.Backward(status.Containers) {
		switch image := status.Container(c.Name).Image; {
		case manifest.Container(p, c.Name) != nil:
		case c.Labels[kube.LabelDebug] != "":
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: c.Name, Image: image},
			})
		default:
			limits := limitsOf(status.Container(c.Name).Resources.GetLinux())
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: c.Name, Image: image, Resources: v1.ResourceRequirements{Limits: limits}})
		}
	}
	return p
}

// limitsOf returns the limits that a runtime reports, nil for none.
func limitsOf(r *runtimeapi.LinuxContainerResources) v1.ResourceList {
	limits := v1.ResourceList{}
	if memory := r.GetMemoryLimitInBytes(); memory > 0 {
		limits[v1.ResourceMemory] = *resource.NewQuantity(memory, resource.BinarySI)
	}
	if quota, period := r.GetCpuQuota(), r.GetCpuPeriod(); quota > 0 && period > 0 {
		limits[v1.ResourceCPU] = *resource.NewMilliQuantity(quota*1000/period, resource.DecimalSI)
	}
	if len(limits) == 0 {
		return nil
	}
	return limits
}

// APIPod returns a pod and its status in the form of the Kubernetes API, like the kubelet's statusManager.
func (m *Manager) APIPod(p *v1.Pod, view *plan.View, status *pod.Status) *v1.Pod {
	out := p.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	s := &out.Status
	s.Phase, s.QOSClass = view.Phase, criconfig.QoS(p)
	for _, ip := range status.IPs {
		s.PodIPs = append(s.PodIPs, v1.PodIP{IP: ip})
	}
	s.PodIP, s.HostIP = cmp.Or(status.IPs...), cmp.Or(m.o.Host.IPs...)
	if started := m.started(p, status); !started.IsZero() {
		t := metav1.NewTime(started)
		s.StartTime = &t
	}
	if s.Reason = view.Reason; s.Reason != "" {
		s.Message = view.Why
	}
	s.Conditions = []v1.PodCondition{condition(v1.PodInitialized, view.Initialised), condition(v1.ContainersReady, view.Ready), condition(v1.PodReady, view.Ready)}
	// The limit for all messages of a pod is divided among its containers.
	limit := maxPodMessages / max(len(p.Spec.InitContainers)+len(p.Spec.Containers), 1)
	for _, c := range view.Containers {
		one := apiContainer(c, status)
		if c.Status == nil && !view.Initialised && !c.Init {
			one.State.Waiting.Reason = "PodInitializing"
		}
		for _, state := range []*v1.ContainerState{&one.State, &one.LastTerminationState} {
			if t := state.Terminated; t != nil && len(t.Message) > limit {
				t.Message = t.Message[:limit]
			}
		}
		switch {
		case c.Init:
			s.InitContainerStatuses = append(s.InitContainerStatuses, one)
		case c.Ephemeral:
			s.EphemeralContainerStatuses = append(s.EphemeralContainerStatuses, one)
		default:
			s.ContainerStatuses = append(s.ContainerStatuses, one)
		}
	}
	return out
}

func condition(kind v1.PodConditionType, ok bool) v1.PodCondition {
	value := v1.ConditionFalse
	if ok {
		value = v1.ConditionTrue
	}
	return v1.PodCondition{Type: kind, Status: value}
}

func apiContainer(c plan.ContainerView, status *pod.Status) v1.ContainerStatus {
	out := v1.ContainerStatus{Name: c.Container.Name, Image: c.Container.Image, Ready: c.Ready, Started: &c.Started}
	if c.Status == nil {
		out.State.Waiting = &v1.ContainerStateWaiting{Reason: "ContainerCreating"}
		return out
	}
	out.ContainerID, out.ImageID, out.RestartCount = c.Status.ID, c.Status.ImageRef, int32(c.Status.RestartCount)
	out.State = apiState(c.Status)
	if attempts := status.Attempts(c.Container.Name); len(attempts) > 1 {
		out.LastTerminationState = apiState(attempts[1])
	}
	return out
}

func apiState(c *pod.ContainerStatus) v1.ContainerState {
	switch {
	case c.Running():
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(c.StartedAt)}}
	case c.Exited():
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
			ExitCode: int32(c.ExitCode), Reason: c.Reason, Message: c.Message, ContainerID: c.ID,
			StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt),
		}}
	}
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: c.Reason, Message: c.Message}}
}

// showWaiting sets the waiting reasons of containers in a pod's status, from the recorded events, and returns them by
// container name. An ended container that will be restarted also waits. Its end becomes the last state.
func showWaiting(p *v1.Pod, view *plan.View, events []Event) map[string]v1.ContainerStateWaiting {
	out := map[string]v1.ContainerStateWaiting{}
	for _, statuses := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for i := range statuses {
			s := &statuses[i]
			of := slices.IndexFunc(view.Containers, func(c plan.ContainerView) bool { return c.Container.Name == s.Name })
			if why := lastWait(events, s.Name); why != nil && startsAgain(p, view.Containers[of]) {
				if s.State.Terminated != nil {
					s.LastTerminationState = s.State
				}
				s.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why.Waiting, Message: why.Message}}
			}
			if s.State.Waiting != nil && s.State.Waiting.Reason != "" {
				out[s.Name] = *s.State.Waiting
			}
		}
	}
	return out
}

// lastWait returns the event with the reason why a container does not start, or nil if the container has made progress
// since.
func lastWait(events []Event, name string) *Event {
	for i, e := range slices.Backward(events) {
		if e.Container != name {
			continue
		}
		if e.Waiting != "" {
			return &events[i]
		}
		switch e.Reason {
		case eventPulled, EventCreated, EventStarted:
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
		return !c.Status.Succeeded() && plan.Restartable(p, c.Container)
	}
	return plan.ShouldRestart(p, c.Container, c.Status)
}
