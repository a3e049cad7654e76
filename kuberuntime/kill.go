package kuberuntime

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
)

// minGrace is the minimum grace period in seconds.
const minGrace = 2

type killTarget struct {
	status    *pod.ContainerStatus
	container *v1.Container
	pod       *v1.Pod
	ip        string
	reason    plan.Reason
	message   string
	after     []chan struct{} // one for each container that stops before this one, closed when its stop has returned
}

// KillPod stops all containers concurrently, sidecars after the others and in reverse order, and then the pod's
// sandboxes. Stopping a sandbox kills a container that could not be stopped. If ctx ends, the sandboxes are not
// stopped. The stopped sandboxes are left to garbage collection. The kubelet's function has the same name.
func (m *Manager) KillPod(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64) error {
	return m.killPod(ctx, p, status, grace, nil)
}

// killPod is KillPod for a pod that ends because of some of its containers.
func (m *Manager) killPod(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64, reasons []plan.Kill) error {
	if p == nil {
		p = restoredPod(status)
	}
	err := m.killContainers(ctx, p, status, grace, reasons)
	if ctx.Err() != nil {
		return cmp.Or(err, ctx.Err())
	}
	errs := []error{err} // a container that cannot be stopped does not keep the sandbox
	for _, sandbox := range status.Sandboxes {
		if _, err := m.runtime.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
			errs = append(errs, fmt.Errorf("stop sandbox %s: %w", shortID(sandbox.GetId()), err))
		}
	}
	return errors.Join(errs...)
}

// killContainers stops the containers of a status, like the kubelet's killContainersWithSyncResult. All preStop hooks
// run at the same time. A sidecar is stopped after the main containers and the sidecars that were started after it (the
// kubelet's terminationOrdering), or when its grace period is over.
func (m *Manager) killContainers(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64, reasons []plan.Kill) error {
	// turn is 0 for containers that are stopped at once. Sidecars follow in reverse order of the manifest.
	turn := func(t killTarget) int {
		i := slices.IndexFunc(p.Spec.InitContainers, func(c v1.Container) bool { return c.Name == t.status.Name && pod.IsSidecar(&c) })
		if i < 0 {
			return 0
		}
		return len(p.Spec.InitContainers) - i
	}
	var targets []killTarget
	for _, c := range status.Containers {
		if !c.MayRun() {
			continue
		}
		t := killTarget{
			status: c, container: cmp.Or(manifest.Container(p, c.Name), restoredContainer(c)), pod: p, ip: cmp.Or(status.IPs...), message: "stopping container " + c.Name,
		}
		if i := slices.IndexFunc(reasons, func(k plan.Kill) bool { return k.Status.ID == c.ID }); i >= 0 {
			t.reason, t.message = reasons[i].Reason, reasons[i].Message
		}
		targets = append(targets, t)
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

// killContainer runs the preStop hook, waits for the container's turn, and stops the container with the rest of the
// grace period. The kubelet's function has the same name.
func (m *Manager) killContainer(ctx context.Context, t killTarget, override *int64) error {
	grace, floor := graceOf(t), int64(minGrace)
	if override != nil {
		grace, floor = *override, min(*override, minGrace)
	}
	m.emit(t.pod, Event{Container: t.status.Name, Reason: EventKilling, Message: t.message, Cause: t.reason})
	if l := t.container.Lifecycle; l != nil && l.PreStop != nil && grace > 0 {
		used := m.preStop(ctx, t, l.PreStop, time.Duration(grace)*time.Second)
		grace -= int64(used / time.Second)
	}
	if len(t.after) > 0 && grace > 0 {
		start := m.o.Now()
		limited, cancel := context.WithTimeout(ctx, time.Duration(grace)*time.Second)
		for _, gone := range t.after {
			select {
			case <-gone:
			case <-limited.Done():
			}
		}
		cancel()
		grace -= int64(m.o.Now().Sub(start) / time.Second)
	}
	m.prober.Drop(t.status.ID) // probe results no longer matter
	if _, err := m.runtime.StopContainer(ctx, &runtimeapi.StopContainerRequest{ContainerId: t.status.ID, Timeout: max(grace, floor)}); err != nil {
		return fmt.Errorf("stop container %s: %w", t.status.Name, err)
	}
	return nil
}

// graceOf returns the grace period of a container in seconds. The grace period of the deletion takes precedence over
// the failed probe's, and the probe's over the pod's.
func graceOf(t killTarget) int64 {
	if g := t.pod.DeletionGracePeriodSeconds; g != nil {
		return *g
	}
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
	return ptr.Deref(t.pod.Spec.TerminationGracePeriodSeconds, minGrace)
}

// restoredPod and restoredContainer replace the manifest of a pod that only the runtime knows, like the kubelet's
// restoreSpecsFromContainerLabels.
func restoredPod(status *pod.Status) *v1.Pod {
	p := podOf(status)
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

func restoredContainer(c *pod.ContainerStatus) *v1.Container {
	out, hook := &v1.Container{Name: c.Name}, &v1.LifecycleHandler{}
	if json.Unmarshal([]byte(c.Annotations[pod.PreStopAnnotation]), hook) == nil {
		out.Lifecycle = &v1.Lifecycle{PreStop: hook}
	}
	if json.Unmarshal([]byte(c.Annotations[pod.PortsAnnotation]), &out.Ports) != nil {
		out.Ports = nil
	}
	return out
}

// postStart runs a container's postStart hook; a hook that fails kills the container.
func (s *syncing) postStart(ctx context.Context, c *v1.Container, id string) error {
	if c.Lifecycle == nil || c.Lifecycle.PostStart == nil {
		return nil
	}
	m := s.m
	err := m.runHook(ctx, c.Lifecycle.PostStart, id, cmp.Or(s.ips...), c.Ports)
	if err == nil {
		m.event(s.pod, c.Name, eventPostStart, "postStart hook done")
		return nil
	}
	if ctx.Err() != nil { // crishim ends, and the container keeps running, as when a kubelet ends during a hook
		return fmt.Errorf("postStart hook: %w", err)
	}
	m.reportWaiting(s.pod, c.Name, EventPostStartFailed, ErrPostStart, "postStart hook: %v", err)
	target := killTarget{
		status:    &pod.ContainerStatus{ID: id, Name: c.Name, SandboxID: s.sandbox},
		container: c, pod: s.pod, ip: cmp.Or(s.ips...), reason: plan.ReasonPostStart, message: "postStart hook failed",
	}
	return errors.Join(fmt.Errorf("%w: %w", ErrPostStart, err), m.killContainer(ctx, target, nil))
}

// preStop runs a hook within the grace period and returns its duration, like the kubelet's executePreStopHook. The
// container is stopped even if the hook fails.
func (m *Manager) preStop(ctx context.Context, t killTarget, hook *v1.LifecycleHandler, grace time.Duration) time.Duration {
	start := m.o.Now()
	limited, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	if err := m.runHook(limited, hook, t.status.ID, t.ip, t.container.Ports); err != nil {
		if errors.Is(limited.Err(), context.DeadlineExceeded) {
			err = fmt.Errorf("not done within %s", grace)
		}
		m.warn(t.pod, t.status.Name, eventPreStopFailed, "preStop hook: %v", err)
	} else {
		m.event(t.pod, t.status.Name, eventPreStop, "preStop hook done")
	}
	return m.o.Now().Sub(start)
}

// runHook runs the command, the HTTP request or the sleep of a hook, like the kubelet's HandlerRunner.
func (m *Manager) runHook(ctx context.Context, hook *v1.LifecycleHandler, id, ip string, ports []v1.ContainerPort) error {
	switch {
	case hook.Exec != nil:
		timeout := time.Duration(0)
		if deadline, ok := ctx.Deadline(); ok {
			timeout = time.Until(deadline)
		}
		return describeExit(m.RunInContainer(ctx, id, hook.Exec.Command, timeout))
	case hook.HTTPGet != nil:
		return httpHook(ctx, hook.HTTPGet, ip, ports)
	case hook.Sleep != nil:
		select {
		case <-time.After(time.Duration(hook.Sleep.Seconds) * time.Second):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return errors.New("no handler")
}

func describeExit(out []byte, err error) error {
	text := strings.TrimSpace(string(out))
	if _, exited := errors.AsType[*CommandError](err); exited && text != "" {
		return fmt.Errorf("%w: %s", err, text[:min(len(text), 1024)])
	}
	return err
}

// httpHook sends the request to the pod. If the server of an HTTPS hook speaks plain HTTP, the request is sent again
// without TLS, as the kubelet does for old manifests.
func httpHook(ctx context.Context, h *v1.HTTPGetAction, podIP string, ports []v1.ContainerPort) error {
	if cmp.Or(h.Host, podIP) == "" {
		return errors.New("the pod has no address")
	}
	const agent = "kube-lifecycle/crishim"
	target := probe.Target{PodIP: podIP, Ports: ports}
	err := probe.HTTPGet(ctx, agent, h, target)
	_, plain := errors.AsType[tls.RecordHeaderError](err)
	if h.Scheme == v1.URISchemeHTTPS && (plain || errors.Is(err, http.ErrSchemeMismatch)) {
		again := *h
		again.Scheme = v1.URISchemeHTTP
		return probe.HTTPGet(ctx, agent, &again, target)
	}
	return err
}

// Remove stops a pod and removes its containers, sandboxes, logs and volumes. Without a manifest (nil) it uses the pod's
// record or the annotations of its containers.
func (m *Manager) Remove(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64) error {
	if p == nil {
		if record, err := m.Record(status.UID); err == nil {
			p = record.Pod
		}
	}
	m.prober.Keep(status.UID, nil)
	m.closeState(status.UID)
	if err := m.KillPod(ctx, p, status, grace); err != nil {
		return err
	}
	var errs []error
	for _, c := range status.Containers {
		if err := m.DeleteContainer(ctx, c.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove container %s: %w", c.Name, err))
		}
	}
	for _, sandbox := range status.Sandboxes {
		if _, err := m.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", shortID(sandbox.GetId()), err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // remaining containers may use the directories
	}
	return m.removeDirs(ctx, status.UID)
}

var ErrRunning = errors.New("the container is running")

// DeleteContainer removes a container that does not run. It removes the logs first, so that a retry after a failure
// removes both. Pods of other tools keep their logs.
func (m *Manager) DeleteContainer(ctx context.Context, id string) error {
	resp, err := m.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return ignoreNotFound(err)
	}
	if resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return ErrRunning // a runtime would kill it
	}
	if err := m.removeLogs(ctx, resp.GetStatus()); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	_, err = m.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// removeLogs removes the log of one attempt, its rotated files, and its link.
func (m *Manager) removeLogs(ctx context.Context, c *runtimeapi.ContainerStatus) error {
	record, own := m.ownRecord(ctx, c.GetLabels()[kube.LabelPodUID])
	name := c.GetMetadata().GetName()
	if !own || name != filepath.Base(name) {
		return nil
	}
	if c.GetAnnotations()[pod.RestartCountAnnotation] == "" {
		return nil // not created by this package
	}
	path := filepath.Join(m.o.Dirs.PodLogs(record.Pod), criconfig.LogPath(name, c.GetMetadata().GetAttempt()))
	files, err := rotations(path)
	if err != nil {
		return err
	}
	files = append(files, path)
	if m.o.Dirs.LegacyLogs != "" {
		files = append(files, filepath.Join(m.o.Dirs.LegacyLogs, legacyLogName(record.Pod.Name, record.Pod.Namespace, name, c.GetId())))
	}
	var errs []error
	for _, file := range files {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
