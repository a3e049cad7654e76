package kubeapi

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/manifest"
)

// createPod adds a pod and starts its worker.
func (s *Server) createPod(c *call) error {
	p := &v1.Pod{}
	if err := c.read(p); err != nil {
		return err
	}
	if err := c.place(p); err != nil {
		return err
	}
	created, err := s.addPod(p)
	if err != nil {
		return err
	}
	return c.answer(created)
}

func (s *Server) addPod(p *v1.Pod) (object, error) {
	manifest.Default(p)
	if problems := manifest.Validate(forRuntime(p, nil), &manifest.Set{}); p.Name != "" && len(problems) > 0 {
		return nil, apierrors.NewInvalid(v1.SchemeGroupVersion.WithKind("Pod").GroupKind(), p.Name, problems)
	}
	scheduled, why := s.schedule(p)
	p.Status = v1.PodStatus{Phase: v1.PodPending, Conditions: []v1.PodCondition{scheduled}}
	created, err := s.store.create(kindOf("pods"), p)
	if err != nil {
		return nil, err
	}
	if why != "" {
		s.event(p, v1.EventTypeWarning, "FailedScheduling", why)
	}
	n := s.nodes[p.Spec.NodeName]
	if n == nil {
		return created, nil
	}
	w := &worker{server: s, node: n, pod: p, run: forRuntime(p, n), wake: make(chan struct{}, 1)}
	ctx, abort := context.WithCancel(s.ctx)
	w.abort = abort
	s.mu.Lock()
	s.workers[p.UID] = w
	s.work.Go(func() { w.keep(ctx) })
	s.mu.Unlock()
	return created, nil
}

// schedule selects a node unless the pod names one.
func (s *Server) schedule(p *v1.Pod) (v1.PodCondition, string) {
	for _, n := range s.o.Nodes {
		if p.Spec.NodeName != "" {
			break
		}
		if o, err := s.store.get(kindOf("nodes"), "", n.Name); err == nil && s.nodes[n.Name].is() == Ready && labels.SelectorFromSet(p.Spec.NodeSelector).Matches(labels.Set(o.GetLabels())) {
			p.Spec.NodeName = n.Name
		}
	}
	if p.Spec.NodeName == "" {
		why := fmt.Sprintf("0/%d nodes are available: none is ready and matches the node selector.", len(s.nodes))
		return v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: v1.PodReasonUnschedulable, Message: why}, why
	}
	return v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue}, ""
}

// podLogs is the directory of pod logs on a node. Here the logs are in a directory of the server, and mounts of podLogs
// are redirected, because the runtime determines the paths of logs.
const podLogs = "/var/log/pods"

// forRuntime returns a pod without the fields for schedulers and API servers, which package kuberuntime rejects, and
// with the node's paths translated.
func forRuntime(p *v1.Pod, n *node) *v1.Pod {
	run := p.DeepCopy()
	spec := &run.Spec
	spec.ServiceAccountName, spec.DeprecatedServiceAccount, spec.AutomountServiceAccountToken = "", "", nil
	spec.NodeName, spec.NodeSelector, spec.Affinity = "", nil, nil
	if n == nil {
		return run
	}
	spec.NodeName = n.Name
	for i := range spec.Volumes {
		host := spec.Volumes[i].HostPath
		if host == nil {
			continue
		}
		if host.Path == podLogs {
			host.Path = n.server.logs
			for _, c := range manifest.Containers(run) {
				for j := range c.VolumeMounts {
					if m := &c.VolumeMounts[j]; m.Name == spec.Volumes[i].Name && m.MountPath == podLogs {
						m.MountPath = host.Path
					}
				}
			}
		}
		longest := ""
		for from := range n.HostPaths {
			if len(from) > len(longest) && (host.Path == from || strings.HasPrefix(host.Path, from+"/")) {
				longest = from
			}
		}
		if longest != "" {
			host.Path = n.HostPaths[longest] + strings.TrimPrefix(host.Path, longest)
		}
	}
	return run
}

// deletePod marks a pod as deleted; its worker then ends it. Without a grace period the pod is removed at once.
func (s *Server) deletePod(p *v1.Pod, o *metav1.DeleteOptions) object {
	grace := *p.Spec.TerminationGracePeriodSeconds
	if o.GracePeriodSeconds != nil {
		grace = *o.GracePeriodSeconds
	}
	s.mu.Lock()
	w := s.workers[p.UID]
	s.mu.Unlock()
	marked := s.store.update(kindOf("pods"), p, func(o object) bool {
		now := metav1.Now()
		o.SetDeletionTimestamp(&now)
		o.SetDeletionGracePeriodSeconds(&grace)
		return true
	})
	if grace == 0 || w == nil {
		s.store.remove(kindOf("pods"), p)
	}
	if w != nil {
		w.abort() // for example a pull
		w.notify()
	}
	if marked == nil {
		return p
	}
	return marked
}

func (s *Server) event(p *v1.Pod, kind, reason, message string) {
	now := metav1.Now()
	e := &v1.Event{
		ObjectMeta:     metav1.ObjectMeta{GenerateName: p.Name + ".", Namespace: p.Namespace},
		InvolvedObject: v1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: p.Namespace, Name: p.Name, UID: p.UID},
		Type:           kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: v1.EventSource{Component: "kubelet", Host: p.Spec.NodeName},
	}
	_, _ = s.store.create(kindOf("events"), e) // the random name may be taken
}

type worker struct {
	server *Server
	node   *node
	pod    *v1.Pod // as created
	run    *v1.Pod // as passed to the runtime
	abort  context.CancelFunc
	wake   chan struct{}
}

func (w *worker) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Intervals of a worker: without changes, and after a failure.
const (
	resync     = 10 * time.Second
	retryAfter = time.Second
)

// keep manages the pod until it is deleted and gone, or the server ends. After ctx has ended it starts nothing.
func (w *worker) keep(ctx context.Context) {
	defer w.abort()
	reportedStuck := false
	for {
		next := resync
		o, err := w.server.store.get(kindOf("pods"), w.pod.Namespace, w.pod.Name)
		deleted := err != nil || o.GetUID() != w.pod.UID || o.GetDeletionTimestamp() != nil
		switch state := w.node.is(); {
		case state == NotReady || state == Hanging:
		case deleted:
			grace := int64(0)
			if err == nil && o.GetUID() == w.pod.UID {
				grace = *o.GetDeletionGracePeriodSeconds()
			}
			if err := w.remove(w.server.ctx, grace); err == nil {
				w.server.store.remove(kindOf("pods"), w.pod)
				return
			} else if w.server.ctx.Err() == nil {
				w.server.event(w.pod, v1.EventTypeWarning, "FailedKillPod", err.Error())
			}
			next = retryAfter
		case state == Stuck && !hasStarted(o.(*v1.Pod)):
			if !reportedStuck {
				w.server.event(w.pod, v1.EventTypeWarning, kuberuntime.EventSandboxFailed, stuck)
				w.status(w.run, nil)
				reportedStuck = true
			}
		default:
			next = w.step(ctx)
		}
		select {
		case <-w.server.ctx.Done():
			return
		case <-w.wake:
		case <-time.After(next):
		}
	}
}

// hasStarted reports whether the pod has containers. They keep running on a node that cannot create sandboxes.
func hasStarted(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(c v1.ContainerStatus) bool { return c.ContainerID != "" })
}

const stuck = "Failed to create pod sandbox: the network of this node is not ready"

// step performs the next action for the pod and returns the delay until the following one.
func (w *worker) step(ctx context.Context) time.Duration {
	m := w.node.runtime.manager
	before, err := m.GetPodStatus(ctx, string(w.run.UID), w.run.Name, w.run.Namespace)
	if err != nil {
		return retryAfter
	}
	m.WatchProbes(w.run, before)
	result := m.SyncPod(ctx, w.run, &manifest.Set{}, before)
	if ctx.Err() != nil {
		return 0 // the pod is deleted
	}
	after, err := m.GetPodStatus(ctx, string(w.run.UID), w.run.Name, w.run.Namespace)
	if err != nil {
		return retryAfter
	}
	w.status(m.APIPod(w.run, m.View(w.run, after), after), result.Err)
	switch {
	case result.RetryAfter > 0:
		return min(result.RetryAfter, resync)
	case result.Err != nil:
		return retryAfter
	case !result.Actions.Nothing() && !result.Actions.KillPod:
		return 0
	}
	return resync
}

var reasons = []error{
	kuberuntime.ErrImagePullBackOff, kuberuntime.ErrImagePull, kuberuntime.ErrImageNeverPull, kuberuntime.ErrInvalidImageName, kuberuntime.ErrImageInspect,
	kuberuntime.ErrCreateConfig, kuberuntime.ErrCreate, kuberuntime.ErrRun, kuberuntime.ErrPostStart, kuberuntime.ErrCrashLoopBackOff,
}

// status reports the pod's status like a kubelet, including why containers wait.
func (w *worker) status(now *v1.Pod, waits error) {
	status := now.Status.DeepCopy()
	if status.Phase == "" {
		status.Phase = v1.PodPending
	}
	var all []error
	if joined, ok := waits.(interface{ Unwrap() []error }); ok { //nolint:errorlint // only errors.Join's own type
		all = joined.Unwrap()
	}
	for _, err := range all {
		var waiting *kuberuntime.WaitingError
		if !errors.As(err, &waiting) {
			continue
		}
		for i := range status.ContainerStatuses {
			c := &status.ContainerStatuses[i]
			if c.Name != waiting.Container || c.State.Running != nil {
				continue
			}
			for _, reason := range reasons {
				if errors.Is(err, reason) {
					if c.State.Terminated != nil {
						c.LastTerminationState = c.State
					}
					c.State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason.Error(), Message: strings.TrimPrefix(waiting.Err.Error(), reason.Error()+": ")}}
					break
				}
			}
		}
	}
	w.server.store.update(kindOf("pods"), w.pod, func(o object) bool {
		p := o.(*v1.Pod)
		status.Conditions = append([]v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue}}, status.Conditions...)
		if equality.Semantic.DeepEqual(p.Status, *status) {
			return false
		}
		p.Status = *status
		return true
	})
	w.server.countPods(w.pod)
}

func (w *worker) remove(ctx context.Context, grace int64) error {
	m := w.node.runtime.manager
	status, err := m.GetPodStatus(ctx, string(w.run.UID), w.run.Name, w.run.Namespace)
	if err == nil {
		err = m.Remove(ctx, w.run, status, &grace)
	}
	if err != nil {
		return err
	}
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	delete(w.server.workers, w.pod.UID)
	return nil
}

// relist wakes the workers of pods that have changed in a runtime, like the kubelet's PLEG.
func (s *Server) relist(r *nodeRuntime) {
	known := map[types.UID]string{}
	for tick := time.NewTicker(retryAfter); ; {
		select {
		case <-s.ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		s.mu.Lock()
		workers := maps.Clone(s.workers)
		s.mu.Unlock()
		maps.DeleteFunc(workers, func(_ types.UID, w *worker) bool { return w.node.runtime != r })
		if len(workers) == 0 {
			continue
		}
		pods, err := r.manager.GetPods(s.ctx, true)
		if err != nil {
			continue
		}
		for _, p := range pods {
			w := workers[types.UID(p.UID)]
			if w == nil {
				continue
			}
			state := ""
			for _, sandbox := range p.Sandboxes {
				state += sandbox.GetId() + sandbox.GetState().String()
			}
			for _, c := range p.Containers {
				state += c.GetId() + c.GetState().String()
			}
			if known[w.pod.UID] != state {
				known[w.pod.UID] = state
				w.notify()
			}
		}
	}
}
