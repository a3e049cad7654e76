package kuberuntime

import (
	"context"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// A worker that is not woken waits for resync. After a failure it waits for retryPeriod, doubled with each consecutive
// failure up to maxRetry.
const (
	resync      = 10 * time.Second
	retryPeriod = 2 * time.Second
	maxRetry    = time.Minute
)

// worker runs one pod, so that a slow pull or hook does not delay other pods. The kubelet's counterpart is a goroutine
// of podWorkers.
type worker struct {
	m         *Manager
	uid, name string // name is namespace/name
	runtime   *runtimeState
	wake      chan struct{}
	done      chan struct{} // closed when the pod is removed

	// Owned by the goroutine of run: the last manifest, the time when the first manifest was read, and the number of
	// consecutive failures.
	last     *v1.Pod
	seen     time.Time
	failures int

	mu       sync.Mutex // guards the fields below
	want     desired
	removing bool
	state    string // last reported state of the pod
}

func newWorker(m *Manager, uid, fullName string, want desired, s *runtimeState) *worker {
	return &worker{m: m, uid: uid, name: fullName, want: want, runtime: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
}

// update passes a newer manifest to the worker, like the kubelet's dispatchWork.
func (w *worker) update(want desired) {
	w.mu.Lock()
	w.want = want
	w.mu.Unlock()
	w.notify()
}

func (w *worker) remove() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.removing {
		w.removing = true
		w.notify()
	}
}

func (w *worker) isRemoving() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.removing
}

// file returns the manifest's file, or "" without a manifest.
func (w *worker) file() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.want.pod == nil {
		return ""
	}
	return w.want.pod.Annotations[pod.FileAnnotation]
}

func (w *worker) notify() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run performs steps until the pod is removed or the context ends. Its timer replaces the kubelet's HandlePodSyncs.
func (w *worker) run(ctx context.Context) {
	for {
		next, finished := w.step(ctx)
		if finished {
			close(w.done)
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-w.m.probed(w.uid):
		case <-time.After(next):
		}
	}
}

func (w *worker) retry() time.Duration {
	w.failures++
	return min(retryPeriod<<min(w.failures-1, 10), maxRetry)
}

// step performs the next step for the pod and returns the time until the following step, like the kubelet's
// podWorkerLoop.
func (w *worker) step(ctx context.Context) (next time.Duration, finished bool) {
	w.mu.Lock()
	want, removing := w.want, w.removing
	w.mu.Unlock()
	// A pod can be removed without a network. The loop wakes the worker when the runtime is ready.
	if w.runtime.blocks(removing || want.pod.Spec.HostNetwork) {
		return resync, false
	}
	begin, operation := w.m.o.Now(), "sync"
	if w.last != want.pod {
		operation = "update"
		if w.last == nil {
			operation = "create"
			w.seen, _ = time.Parse(time.RFC3339Nano, want.pod.Annotations[pod.ConfigSeenAnnotation])
			w.m.rounds.workerStart.Observe(begin.Sub(w.seen).Seconds())
		}
		w.last, w.failures = want.pod, 0
		if err := w.m.updateRecord(ctx, want.pod); err != nil {
			w.m.warn(want.pod, "", eventFailed, "%v", err)
		}
	}
	if removing {
		operation = "kill"
	}
	defer func() { w.m.rounds.duration.WithLabelValues(operation).Observe(w.m.o.Now().Sub(begin).Seconds()) }()
	namespace, name, _ := strings.Cut(w.name, "/")
	status, err := w.m.GetPodStatus(ctx, w.uid, name, namespace)
	if err != nil {
		return w.retry(), false // not reported here, because the loop reports that the runtime does not answer
	}
	if removing {
		if err := w.m.Remove(ctx, want.pod, status, nil); err != nil {
			if ctx.Err() == nil {
				w.m.warn(podOf(status), "", eventFailed, "remove the pod: %v", err)
			}
			return w.retry(), false
		}
		w.m.event(podOf(status), "", EventKilling, "the pod is removed")
		return 0, true
	}
	if err := w.m.recall(ctx, want.pod, status); err != nil {
		w.m.warn(want.pod, "", eventFailed, "%v", err)
		return w.retry(), false
	}
	return w.sync(ctx, want, status), false
}

// sync reports and records the pod's state, calls SyncPod, and returns the time until the next step. The kubelet's
// counterpart is syncPod.
func (w *worker) sync(ctx context.Context, want desired, status *pod.Status) time.Duration {
	w.m.WatchProbes(want.pod, status)
	w.m.reportEnds(want.pod, status)
	w.reportState(want.pod, status)
	w.m.recordState(ctx, want.pod, status, nil)
	result := w.m.SyncPod(ctx, want.pod, want.set, status)
	w.m.recordState(ctx, want.pod, status, &result)
	if result.Err != nil && !result.onlyBackOff() {
		next := w.retry()
		if result.RetryAfter > 0 {
			next = min(next, result.RetryAfter)
		}
		return next
	}
	w.failures = 0
	switch {
	case result.RetryAfter > 0:
		return min(result.RetryAfter, resync)
	case !result.Actions.Nothing() && (!result.Actions.KillPod || result.Actions.CreateSandbox):
		return 0
	}
	if left := w.m.untilDeadline(want.pod, status); left > 0 {
		return min(resync, left)
	}
	return resync
}

// reportState emits an event when a pod becomes ready, is no longer ready, succeeds or fails, and when a worker adopts an
// existing pod. The kubelet's status manager sends such changes to the API server.
func (w *worker) reportState(p *v1.Pod, status *pod.Status) {
	view := w.m.View(p, status)
	state := string(view.Phase)
	if view.Ready {
		state = "ready"
	}
	w.mu.Lock()
	before := w.state
	w.state = state
	w.mu.Unlock()
	if before == string(v1.PodPending) && view.Phase == v1.PodRunning {
		w.m.rounds.start.Observe(w.m.o.Now().Sub(w.seen).Seconds())
	}
	switch {
	case before == state:
	case before == "" && status.Sandbox() != nil:
		w.m.event(p, "", eventAdopted, "found and adopted, %s", strings.ToLower(state))
	case state == "ready":
		w.m.event(p, "", eventReady, "ready%s", withAddress(status.IPs))
	case before == "ready" && view.Phase == v1.PodRunning:
		w.m.warn(p, "", eventNotReady, "no longer ready")
	case view.Phase == v1.PodFailed && !w.m.pastActiveDeadline(p, status, view): // a passed deadline has its own event
		w.m.warn(p, "", eventFailed, "failed: %s", whatFailed(view))
	case view.Phase == v1.PodSucceeded:
		w.m.event(p, "", eventReady, "succeeded")
	}
}
