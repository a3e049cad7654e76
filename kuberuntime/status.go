package kuberuntime

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/logfile"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
)

// GetPods lists the pods of the runtime, sorted by namespace, name and uid. A pod counts as
// running while it has a ready sandbox or a running container.
func (m *Manager) GetPods(ctx context.Context, all bool) ([]*pod.Pod, error) {
	sandboxes, err := m.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, err
	}
	containers, err := m.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return nil, err
	}
	byUID, bySandbox := map[string]*pod.Pod{}, map[string]*pod.Pod{}
	for _, s := range sandboxes.GetItems() {
		meta := s.GetMetadata()
		p := byUID[meta.GetUid()]
		if p == nil {
			p = &pod.Pod{UID: meta.GetUid(), Name: meta.GetName(), Namespace: meta.GetNamespace()}
			byUID[p.UID] = p
		}
		p.Sandboxes = append(p.Sandboxes, s)
		bySandbox[s.GetId()] = p
	}
	for _, c := range containers.GetContainers() {
		labels := c.GetLabels()
		uid := labels[kube.LabelPodUID]
		p := cmp.Or(bySandbox[c.GetPodSandboxId()], byUID[uid])
		if p == nil {
			if uid == "" {
				continue // a container outside pods
			}
			p = &pod.Pod{UID: uid, Name: labels[kube.LabelPodName], Namespace: labels[kube.LabelPodNamespace]}
			byUID[uid] = p
		}
		p.Containers = append(p.Containers, c)
	}
	pods := slices.SortedFunc(maps.Values(byUID), func(a, b *pod.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	if !all {
		pods = slices.DeleteFunc(pods, func(p *pod.Pod) bool { return !isRunning(p) })
	}
	return pods, nil
}

func isRunning(p *pod.Pod) bool {
	return slices.ContainsFunc(p.Sandboxes, func(s *runtimeapi.PodSandbox) bool {
		return s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY
	}) || slices.ContainsFunc(p.Containers, func(c *runtimeapi.Container) bool {
		return c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
	})
}

// GetPodStatus reads the state of a pod with the kubelet's labels. Pods of other tools may lack these labels. GetPods
// lists such pods, too.
func (m *Manager) GetPodStatus(ctx context.Context, uid, name, namespace string) (*pod.Status, error) {
	sandboxes, containers, err := m.labelled(ctx, uid)
	if err != nil {
		return nil, err
	}
	return m.StatusOf(ctx, &pod.Pod{UID: uid, Name: name, Namespace: namespace, Sandboxes: sandboxes, Containers: containers})
}

// StatusOf reads the state of the listed sandboxes and containers of a pod.
func (m *Manager) StatusOf(ctx context.Context, p *pod.Pod) (*pod.Status, error) {
	s := &pod.Status{UID: p.UID, Name: p.Name, Namespace: p.Namespace, At: m.o.Now()}
	for _, sandbox := range p.Sandboxes {
		resp, err := m.runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: sandbox.GetId()})
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		s.Sandboxes = append(s.Sandboxes, resp.GetStatus())
	}
	slices.SortStableFunc(s.Sandboxes, func(a, b *runtimeapi.PodSandboxStatus) int {
		return cmp.Or(cmp.Compare(b.GetCreatedAt(), a.GetCreatedAt()), cmp.Compare(b.GetMetadata().GetAttempt(), a.GetMetadata().GetAttempt()))
	})
	s.IPs = addresses(s.Sandboxes, m.o.Host.IPs)
	for _, c := range p.Containers {
		resp, err := m.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.GetId()})
		if isNotFound(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		converted := containerStatus(c.GetPodSandboxId(), resp.GetStatus())
		if converted.Exited() {
			converted.Message = terminationMessage(converted, resp.GetStatus().GetMessage())
		}
		s.Containers = append(s.Containers, converted)
	}
	slices.SortStableFunc(s.Containers, func(a, b *pod.ContainerStatus) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(b.RestartCount, a.RestartCount))
	})
	return s, nil
}

// labelled lists the sandboxes and containers with a pod's label. The label is checked again: some runtimes ignore filters.
func (m *Manager) labelled(ctx context.Context, uid string) ([]*runtimeapi.PodSandbox, []*runtimeapi.Container, error) {
	label := map[string]string{kube.LabelPodUID: uid}
	sandboxes, err := m.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{LabelSelector: label}})
	if err != nil {
		return nil, nil, err
	}
	containers, err := m.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{LabelSelector: label}})
	if err != nil {
		return nil, nil, err
	}
	return slices.DeleteFunc(sandboxes.GetItems(), func(s *runtimeapi.PodSandbox) bool { return s.GetLabels()[kube.LabelPodUID] != uid }),
		slices.DeleteFunc(containers.GetContainers(), func(c *runtimeapi.Container) bool { return c.GetLabels()[kube.LabelPodUID] != uid }), nil
}

// addresses returns the IPs of the newest sandbox if it is ready, like the kubelet's determinePodSandboxIPs.
func addresses(sandboxes []*runtimeapi.PodSandboxStatus, host []string) []string {
	if len(sandboxes) == 0 || sandboxes[0].GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		return nil
	}
	newest := sandboxes[0]
	if newest.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		return host
	}
	if newest.GetNetwork().GetIp() == "" {
		return nil
	}
	ips := []string{newest.GetNetwork().GetIp()}
	for _, ip := range newest.GetNetwork().GetAdditionalIps() {
		ips = append(ips, ip.GetIp())
	}
	return ips
}

// containerStatus converts a status, like the kubelet's toKubeContainerStatus. A container of another tool has hash 0
// and looks changed.
func containerStatus(sandboxID string, c *runtimeapi.ContainerStatus) *pod.ContainerStatus {
	out := &pod.ContainerStatus{
		ID: c.GetId(), Name: c.GetMetadata().GetName(), SandboxID: sandboxID, State: c.GetState(),
		CreatedAt: timeOf(c.GetCreatedAt()), StartedAt: timeOf(c.GetStartedAt()), FinishedAt: timeOf(c.GetFinishedAt()),
		ExitCode: int(c.GetExitCode()), Image: c.GetImage().GetImage(), ImageRef: c.GetImageRef(), ImageID: c.GetImageId(),
		Reason: c.GetReason(), Message: c.GetMessage(), RuntimeMessage: c.GetMessage(), LogPath: c.GetLogPath(), Labels: c.GetLabels(),
		Annotations: c.GetAnnotations(), Mounts: c.GetMounts(), Resources: c.GetResources(),
	}
	if specified := c.GetImage().GetUserSpecifiedImage(); specified != "" {
		out.Image = specified
	}
	out.Attempt = int(c.GetMetadata().GetAttempt())
	out.RestartCount = out.Attempt
	if n, err := strconv.Atoi(c.GetAnnotations()[pod.RestartCountAnnotation]); err == nil {
		out.RestartCount = n
	}
	if h, err := strconv.ParseUint(c.GetAnnotations()[pod.HashAnnotation], 16, 64); err == nil {
		out.Hash = h
	}
	return out
}

// timeOf returns the zero time for 0, the CRI's "never".
func timeOf(ns int64) time.Time {
	if ns <= 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// The kubelet's limits of termination messages.
const (
	maxMessage     = 4096
	maxPodMessages = 12 << 10
	maxLogMessage  = 2048
	maxLogLines    = 80
	cannotRunState = "ContainerCannotRun"
)

// terminationMessage returns the runtime's message and the content of a container's message file, or the end of its log
// if its policy says so, like the kubelet's getTerminationMessage.
func terminationMessage(c *pod.ContainerStatus, runtimeMessage string) string {
	own := messageFile(c)
	fallback := c.Annotations[pod.MessagePolicyAnnotation] == string(v1.TerminationMessageFallbackToLogsOnError)
	if own == "" && fallback && c.ExitCode != 0 && c.Reason != cannotRunState {
		own = strings.Join(logfile.LastLines(c.LogPath, maxLogLines, maxLogMessage), "\n")
	}
	switch {
	case runtimeMessage == "":
		return own
	case own == "":
		return runtimeMessage
	}
	return runtimeMessage + ": " + own
}

// messageFile reads the file that is mounted at the container's message path.
func messageFile(c *pod.ContainerStatus) string {
	path := c.Annotations[pod.MessagePathAnnotation]
	if path == "" {
		return ""
	}
	for _, mount := range c.Mounts {
		if mount.GetContainerPath() != path || mount.GetHostPath() == "" {
			continue
		}
		f, err := bounded.Open(mount.GetHostPath())
		if err != nil {
			return "" // the pod's directory is gone or on another host
		}
		defer f.Close()
		size, _ := f.Seek(0, io.SeekEnd)
		text, _ := io.ReadAll(io.NewSectionReader(f, max(size-maxMessage, 0), maxMessage))
		return string(text)
	}
	return ""
}

// probeExec runs the command of a probe. It returns a probe.UnknownError if the runtime did not run the command,
// because the probe has not failed then.
func (m *Manager) probeExec(ctx context.Context, id string, cmd []string, timeout time.Duration) error {
	out, err := m.RunInContainer(ctx, id, cmd, timeout)
	if _, exited := errors.AsType[*CommandError](err); err == nil || exited || errors.Is(err, errTimeout) {
		return describeExit(out, err)
	}
	return &probe.UnknownError{Err: err}
}

// probeChanged emits a failed probe as an event, and records a new result.
func (m *Manager) probeChanged(c probe.Change) {
	if c.Err != nil {
		result := "failed"
		if _, unknown := errors.AsType[*probe.UnknownError](c.Err); unknown {
			result = "has no result"
		}
		m.warn(c.Container.Pod, c.Container.Name, EventUnhealthy, "%s probe %s: %v", c.Kind, result, c.Err)
	}
	if c.Verdict {
		m.updateState(string(c.Container.Pod.UID))
	}
}

// WatchProbes starts the probes of a pod's running containers, and stops the probes of ended containers, like AddPod
// and CleanupPods of the kubelet's prober manager.
func (m *Manager) WatchProbes(p *v1.Pod, status *pod.Status) {
	running, kept := map[string]bool{}, m.kept(string(p.UID))
	for _, c := range manifest.Containers(p) {
		state := status.Container(c.Name)
		if !state.Running() {
			continue
		}
		running[state.ID] = true
		before := kept.Container(c.Name)
		if before == nil || before.ID != state.ID || !before.StartedAt.Equal(state.StartedAt) {
			before = &ContainerState{}
		}
		m.prober.Watch(probe.Container{
			Target: probe.Target{ContainerID: state.ID, PodIP: cmp.Or(status.IPs...), Ports: c.Ports},
			Pod:    p, Name: c.Name, Started: state.StartedAt,
			Startup: c.StartupProbe, Liveness: c.LivenessProbe, Readiness: c.ReadinessProbe, WasStarted: before.Started, WasReady: before.Ready,
		})
	}
	m.prober.Keep(string(p.UID), running)
}

// View returns a pod's phase and readiness from the current results of its probes.
func (m *Manager) View(p *v1.Pod, status *pod.Status) *plan.View {
	return m.view(p, status, m.prober.Result, m.kept(string(p.UID)))
}

// view returns a pod's phase and readiness. If the pod has ended for good, they come from kept, because the runtime may
// have lost containers.
func (m *Manager) view(p *v1.Pod, status *pod.Status, probes plan.Probes, kept *PodState) *plan.View {
	view := plan.Observe(p, status, probes)
	switch {
	case kept.final():
		view.Phase, view.Ready, view.Reason, view.Why = kept.Phase, false, kept.Reason, kept.Why
	case m.pastActiveDeadline(p, status, view):
		view.Phase, view.Ready, view.Reason, view.Why = v1.PodFailed, false, EventDeadline, "it has run for its activeDeadlineSeconds"
	}
	return view
}
