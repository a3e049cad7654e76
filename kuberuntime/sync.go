package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// SyncResult is the result of SyncPod, like the kubelet's PodSyncResult.
type SyncResult struct {
	Actions *plan.Actions
	// Err joins all failures of the step. Other containers may have been started.
	Err error
	// RetryAfter is the time until the first back-off ends, 0 without a back-off.
	RetryAfter time.Duration

	failures []error // the errors that Err joins
}

// WaitingError reports a container that was not started. Err wraps the kubelet's reason.
type WaitingError struct {
	Container string
	Err       error
}

func (w *WaitingError) Error() string { return fmt.Sprintf("container %s: %v", w.Container, w.Err) }

func (w *WaitingError) Unwrap() error { return w.Err }

// ErrCrashLoopBackOff is the reason of a container that has crashed and waits before its next start.
var ErrCrashLoopBackOff = errors.New("CrashLoopBackOff")

type retryError struct {
	err   error
	after time.Duration
}

func (e *retryError) Error() string { return e.err.Error() }

func (e *retryError) Unwrap() error { return e.err }

// backOffOf returns the rest of the back-off that an error reports, and whether the error reports a back-off.
func backOffOf(err error) (time.Duration, bool) {
	if retry, ok := errors.AsType[*retryError](err); ok {
		return retry.after, true
	}
	return 0, false
}

func (r *SyncResult) add(err error) {
	if err == nil {
		return
	}
	r.failures = append(r.failures, err)
	r.Err = errors.Join(r.failures...)
	if after, backsOff := backOffOf(err); backsOff && (r.RetryAfter == 0 || after < r.RetryAfter) {
		r.RetryAfter = after
	}
}

// onlyBackOff reports whether all failures are containers in their back-off.
func (r *SyncResult) onlyBackOff() bool {
	return r.Err != nil && !slices.ContainsFunc(r.failures, func(err error) bool {
		_, backsOff := backOffOf(err)
		return !backsOff
	})
}

// backsOffLonger reports whether a crashed container waits longer than limit for its next start. A limit of 0 means no
// limit.
func (r *SyncResult) backsOffLonger(limit time.Duration) bool {
	return limit > 0 && slices.ContainsFunc(r.failures, func(err error) bool {
		after, _ := backOffOf(err)
		return errors.Is(err, ErrCrashLoopBackOff) && after > limit
	})
}

type syncing struct {
	m       *Manager
	pod     *v1.Pod
	set     *manifest.Set
	status  *pod.Status
	actions *plan.Actions
	sandbox string // id
	config  *runtimeapi.PodSandboxConfig
	handler string // handler of the pod's RuntimeClass
	// features of the handler, nil for a pod that does not need them.
	features *runtimeapi.RuntimeHandlerFeatures
	users    *runtimeapi.UserNamespace // nil for the user namespace of the host
	ips      []string
	volumes  map[string]volume.Made
	images   map[string]*runtimeapi.Image // images of image volumes by reference
	result   *SyncResult
}

// SyncPod performs the next step for a pod: it kills containers, creates the sandbox, and starts containers. A pod with
// init containers needs several steps.
func (m *Manager) SyncPod(ctx context.Context, p *v1.Pod, set *manifest.Set, status *pod.Status) SyncResult {
	if m.untilDeadline(p, status) <= 0 {
		result := SyncResult{Actions: &plan.Actions{KillPod: true, SandboxReason: "its active deadline has passed"}}
		if !isDead(status) {
			m.warn(p, "", EventDeadline, "the pod has run for its activeDeadlineSeconds of %d", *p.Spec.ActiveDeadlineSeconds)
			result.add(m.KillPod(ctx, p, status, nil))
		}
		if result.Err == nil {
			result.add(m.volumes.Release(p))
		}
		return result
	}
	actions := plan.Compute(p, status, m.prober.Result)
	if kept := m.kept(string(p.UID)); kept.final() && (!actions.KillPod || actions.CreateSandbox) {
		actions = &plan.Actions{KillPod: true, SandboxReason: "the pod has " + strings.ToLower(string(kept.Phase))}
	}
	result := SyncResult{Actions: actions}
	s := &syncing{m: m, pod: p, set: set, status: status, actions: actions, sandbox: actions.SandboxID, ips: status.IPs, result: &result}
	err := s.kill(ctx)
	switch {
	case err != nil:
	case actions.KillPod && !actions.CreateSandbox:
		err = m.volumes.Release(p)
	case len(actions.StartInit)+len(actions.StartEphemeral)+len(actions.Start) == 0 && !actions.CreateSandbox:
		// Running containers see changed ConfigMaps and Secrets in their volumes.
		if _, err = m.volumes.Setup(p, set); err != nil {
			m.warn(p, "", EventVolumes, "%v", err)
		}
	default:
		if err = s.prepare(ctx); err == nil {
			s.start(ctx)
		}
	}
	result.add(err)
	return result
}

func (s *syncing) kill(ctx context.Context) error {
	if s.actions.KillPod {
		if !s.actions.CreateSandbox && isDead(s.status) {
			return nil
		}
		if s.status.Sandbox() != nil {
			reason := EventKilling
			if s.actions.SandboxChanged {
				reason = EventSandboxChanged
			}
			s.m.event(s.pod, "", reason, "the pod is stopped: %s", s.actions.SandboxReason)
		}
		if err := s.m.killPod(ctx, s.pod, s.status, nil, s.actions.Kill); err != nil {
			return err
		}
		if s.actions.CreateSandbox {
			s.removeInit(ctx, 0) // init containers run again in the new sandbox, so no attempt is kept
		}
		return nil
	}
	dying := &pod.Status{IPs: s.status.IPs}
	for _, k := range s.actions.Kill {
		dying.Containers = append(dying.Containers, k.Status)
		if k.Reason == plan.ReasonChanged {
			s.m.recordReplaced(ctx, s.pod, s.status, k.Status)
		}
	}
	if err := s.m.killContainers(ctx, s.pod, dying, nil, s.actions.Kill); err != nil {
		return err
	}
	s.removeInit(ctx, 1)
	return nil
}

func isDead(status *pod.Status) bool {
	for _, sandbox := range status.Sandboxes {
		if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			return false
		}
	}
	return !slices.ContainsFunc(status.Containers, (*pod.ContainerStatus).MayRun)
}

// removeInit removes the dead attempts of each init container and sidecar, except the newest keep attempts, like the
// kubelet's pruneInitContainersBeforeStart and purgeInitContainers. Back-offs, logs --previous and the last state need
// one attempt.
func (s *syncing) removeInit(ctx context.Context, keep int) {
	for i := range s.pod.Spec.InitContainers {
		dead := s.status.Attempts(s.pod.Spec.InitContainers[i].Name)
		if keep > 0 {
			dead = slices.DeleteFunc(dead, func(c *pod.ContainerStatus) bool { return !c.Exited() && !c.Unknown() })
		}
		for _, c := range dead[min(keep, len(dead)):] {
			if err := s.m.DeleteContainer(ctx, c.ID); err != nil {
				s.result.add(fmt.Errorf("remove init container %s: %w", c.Name, err))
			}
		}
	}
}

// start starts the containers of the actions. After a failed init container it stops. Failures of other containers do
// not delay each other.
func (s *syncing) start(ctx context.Context) {
	for _, i := range s.actions.StartEphemeral {
		c := (*v1.Container)(&s.pod.Spec.EphemeralContainers[i].EphemeralContainerCommon)
		target := s.pod.Spec.EphemeralContainers[i].TargetContainerName
		s.result.add(s.startOne(ctx, c, s.status.Container(target)))
	}
	for _, i := range s.actions.StartInit {
		c := &s.pod.Spec.InitContainers[i]
		if err := s.startOne(ctx, c, nil); err != nil {
			s.result.add(err)
			if !pod.IsSidecar(c) {
				return
			}
		}
	}
	for _, i := range s.actions.Start {
		s.result.add(s.startOne(ctx, &s.pod.Spec.Containers[i], nil))
	}
}

func (s *syncing) startOne(ctx context.Context, c *v1.Container, target *pod.ContainerStatus) error {
	err := ctx.Err()
	if err == nil {
		err = s.m.crashWait(s.pod, c, s.status.LastEnded(c.Name))
	}
	if err == nil {
		err = s.startContainer(ctx, c, target)
	}
	if err != nil {
		return &WaitingError{Container: c.Name, Err: err}
	}
	return nil
}

// untilDeadline returns the rest of a pod's activeDeadlineSeconds, like the kubelet's activeDeadlineHandler, or
// math.MaxInt64 without a deadline.
func (m *Manager) untilDeadline(p *v1.Pod, status *pod.Status) time.Duration {
	if p.Spec.ActiveDeadlineSeconds == nil { // most pods have no deadline: avoid reading the record
		return math.MaxInt64
	}
	started := m.started(p, status)
	if started.IsZero() {
		return math.MaxInt64
	}
	return started.Add(time.Duration(*p.Spec.ActiveDeadlineSeconds) * time.Second).Sub(m.o.Now())
}

// started returns the creation time of the pod's first sandbox, or zero without a sandbox. The record keeps the time
// after garbage collection of the sandbox.
func (m *Manager) started(p *v1.Pod, status *pod.Status) time.Time {
	started := status.Started()
	if record, err := m.Record(string(p.UID)); err == nil && !record.Started.IsZero() && record.Started.Before(started) {
		return record.Started
	}
	return started
}

// pastActiveDeadline reports whether the deadline passed before the pod ended by itself.
func (m *Manager) pastActiveDeadline(p *v1.Pod, status *pod.Status, view *plan.View) bool {
	if m.untilDeadline(p, status) > 0 {
		return false
	}
	at := m.started(p, status).Add(time.Duration(*p.Spec.ActiveDeadlineSeconds) * time.Second)
	for _, c := range view.Containers {
		if !c.Init && !c.Ephemeral && (!c.Status.Exited() || c.Status.FinishedAt.After(at) || plan.ShouldRestart(p, c.Container, c.Status)) {
			return true
		}
	}
	return false // all containers ended in time and do not restart
}
