package kuberuntime

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// minGrace is the least time that a container gets to end, in seconds.
const minGrace = 2

// killTarget is a container to kill with what is known about it.
type killTarget struct {
	status    *pod.ContainerStatus
	container *v1.Container // nil when the manifest is not known
	pod       *v1.Pod
	ip        string
	reason    plan.Reason
	message   string
	after     []chan struct{} // closed when the containers are gone that go first
}

// KillPod ends all containers at the same time, sidecars after the others and in reverse
// order, and then the pod's sandboxes. The sandboxes stay, stopped, for garbage collection.
func (m *Manager) KillPod(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64) error {
	if p == nil {
		p = restoredPod(status)
	}
	if err := m.killContainers(ctx, p, status, grace); err != nil {
		return err
	}
	var errs []error
	for _, sandbox := range status.Sandboxes {
		if _, err := m.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
			errs = append(errs, fmt.Errorf("stop sandbox %s: %w", shortID(sandbox.GetId()), err))
		}
	}
	return errors.Join(errs...)
}

// killContainers waits for all. The preStop hooks run at the same time; a sidecar is then
// stopped when the main containers and the sidecars that were started after it are gone,
// or when its grace is over.
func (m *Manager) killContainers(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64) error {
	// turn is 0 for what is stopped at once; sidecars follow in the reverse order of the manifest.
	turn := func(t killTarget) int {
		i := slices.IndexFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == t.status.Name && pod.IsSidecar(&c) })
		if i < 0 {
			return 0
		}
		return len(p.Spec.InitContainers) - i
	}
	var targets []killTarget
	for _, c := range status.Containers {
		if c.Running() || c.State == runtimeapi.ContainerState_CONTAINER_UNKNOWN {
			targets = append(targets, killTarget{
				status: c, container: manifest.Container(p, c.Name), pod: p, ip: cmp.Or(status.IPs...), message: "stopping container " + c.Name,
			})
		}
	}
	slices.SortStableFunc(targets, func(a, b killTarget) int { return cmp.Compare(turn(a), turn(b)) })
	errs := make([]error, len(targets))
	gone := make([]chan struct{}, len(targets))
	var wg sync.WaitGroup
	for i, target := range targets {
		gone[i] = make(chan struct{})
		if turn(target) > 0 {
			target.after = slices.Clone(gone[:i])
		}
		wg.Go(func() {
			defer close(gone[i])
			errs[i] = m.killContainer(ctx, target, grace)
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// killContainer runs the preStop hook, waits for the container's turn, and stops it with
// what that left of the grace period.
func (m *Manager) killContainer(ctx context.Context, t killTarget, override *int64) error {
	grace, floor := graceOf(t), int64(minGrace)
	if override != nil {
		grace, floor = *override, min(*override, minGrace)
	}
	m.event(t.pod, t.status.Name, EventKilling, "%s", t.message)
	if hook := preStopOf(t); hook != nil && grace > 0 {
		used := m.preStop(ctx, t, hook, time.Duration(grace)*time.Second)
		grace -= int64(used / time.Second)
	}
	if len(t.after) > 0 && grace > 0 {
		grace -= int64(m.waitTurn(ctx, t.after, time.Duration(grace)*time.Second) / time.Second)
	}
	m.prober.Drop(t.status.ID) // what they find from now on does not matter
	if _, err := m.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: t.status.ID, Timeout: max(grace, floor)}); err != nil {
		return fmt.Errorf("stop container %s: %w", t.status.Name, err)
	}
	return nil
}

// waitTurn waits until all others are gone or the time is over, and returns how long it took.
func (m *Manager) waitTurn(ctx context.Context, others []chan struct{}, limit time.Duration) time.Duration {
	start := m.o.Now()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for _, gone := range others {
		select {
		case <-gone:
		case <-timer.C:
			return limit
		case <-ctx.Done():
			return m.o.Now().Sub(start)
		}
	}
	return m.o.Now().Sub(start)
}

// graceOf is the grace period of a container in seconds: the deletion's, the failed
// probe's, the pod's.
func graceOf(t killTarget) int64 {
	if g := t.pod.DeletionGracePeriodSeconds; g != nil {
		return *g
	}
	if t.container != nil {
		var probe *v1.Probe
		switch t.reason {
		case plan.ReasonLiveness:
			probe = t.container.LivenessProbe
		case plan.ReasonStartup:
			probe = t.container.StartupProbe
		}
		if probe != nil && probe.TerminationGracePeriodSeconds != nil {
			return *probe.TerminationGracePeriodSeconds
		}
	}
	if g := t.pod.Spec.TerminationGracePeriodSeconds; g != nil {
		return *g
	}
	if g, err := strconv.ParseInt(t.status.Annotations[pod.TerminationGraceAnnotation], 10, 64); err == nil {
		return g
	}
	return minGrace
}

// preStopOf finds the hook in the manifest, or in what the container keeps of it.
func preStopOf(t killTarget) *v1.LifecycleHandler {
	if t.container != nil {
		if t.container.Lifecycle == nil {
			return nil
		}
		return t.container.Lifecycle.PreStop
	}
	text := t.status.Annotations[pod.PreStopAnnotation]
	if text == "" {
		return nil
	}
	hook := &v1.LifecycleHandler{}
	if json.Unmarshal([]byte(text), hook) != nil {
		return nil // another tool's annotation
	}
	return hook
}

// portsOf are a container's ports from the manifest or from its annotation; hooks name them.
func portsOf(t killTarget) []v1.ContainerPort {
	if t.container != nil {
		return t.container.Ports
	}
	var ports []v1.ContainerPort
	if json.Unmarshal([]byte(t.status.Annotations[pod.PortsAnnotation]), &ports) != nil {
		return nil
	}
	return ports
}

// restoredPod stands in for the manifest of a pod that only the runtime knows.
func restoredPod(status *pod.Status) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: status.Name, Namespace: status.Namespace, UID: types.UID(status.UID)}}
	for _, c := range status.Containers {
		if g, err := strconv.ParseInt(c.Annotations[pod.DeletionGraceAnnotation], 10, 64); err == nil {
			p.DeletionGracePeriodSeconds = &g
		}
		if g, err := strconv.ParseInt(c.Annotations[pod.TerminationGraceAnnotation], 10, 64); err == nil {
			p.Spec.TerminationGracePeriodSeconds = &g
		}
	}
	return p
}
