// Package probe runs liveness, readiness and startup probes: a command in the container, an HTTP request, a TCP
// connection or a gRPC health check. Run makes one attempt. Manager runs the probes of the watched containers
// periodically, applies the thresholds, and returns the last result.
package probe

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/plan"
)

type Container struct {
	Target
	Pod                          *v1.Pod
	Name                         string
	Started                      time.Time
	Startup, Liveness, Readiness *v1.Probe
	// WasStarted and WasReady are results of an earlier process. A successful startup probe is not repeated. A ready
	// container stays ready until its readiness probe has a new result.
	WasStarted, WasReady bool
}

// Change is a new result or a failed attempt.
type Change struct {
	Container Container
	Kind      plan.Kind
	Result    plan.Result
	Err       error // error of the attempt
	Verdict   bool  // Result is new; otherwise an attempt has failed without a new result
}

// Manager probes containers, like the kubelet's prober. Keep ends the probes of ended containers.
type Manager struct {
	ctx    context.Context
	cancel context.CancelFunc
	exec   Exec
	notify func(Change)
	now    func() time.Time
	spread time.Time     // time of the last call of Spread; zero before the first call
	starts chan struct{} // semaphore: a token for each command that is being started

	wg      sync.WaitGroup
	mu      sync.Mutex
	workers map[workerKey]*worker
}

type workerKey struct {
	id   string
	kind plan.Kind
}

// NewManager returns a Manager. It calls notify for every failed attempt and every new result, from several goroutines.
func NewManager(exec Exec, notify func(Change)) *Manager {
	ctx, cancel := context.WithCancel(context.Background())
	return &Manager{
		ctx: ctx, cancel: cancel, exec: exec, notify: notify, now: time.Now,
		starts: make(chan struct{}, 2*runtime.GOMAXPROCS(0)), workers: map[workerKey]*worker{},
	}
}

// Spread delays the first attempt of each probe by a random part of its period. It affects probes that start within one
// period after the call: a new process finds many running containers at once. The kubelet does the same.
func (m *Manager) Spread() { m.spread = m.now() }

func (m *Manager) Close() {
	m.cancel()
	m.wg.Wait()
}

// Watch starts the probes of a container, except probes that already run.
func (m *Manager) Watch(c Container) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ctx.Err() != nil {
		return
	}
	for kind, p := range map[plan.Kind]*v1.Probe{plan.Startup: c.Startup, plan.Liveness: c.Liveness, plan.Readiness: c.Readiness} {
		key := workerKey{c.ContainerID, kind}
		if p == nil || m.workers[key] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(m.ctx)
		w := &worker{manager: m, container: c, kind: kind, probe: p, cancel: cancel}
		m.workers[key] = w
		if kind == plan.Startup && c.WasStarted || kind == plan.Readiness && c.WasReady {
			w.result = plan.Success
		}
		if kind == plan.Startup && c.WasStarted {
			continue
		}
		m.wg.Go(func() { w.run(ctx) })
	}
}

// Keep ends the probes of a pod's containers that are not in the list.
func (m *Manager) Keep(podUID string, ids map[string]bool) {
	m.end(func(w *worker) bool { return string(w.container.Pod.UID) == podUID && !ids[w.container.ContainerID] })
}

func (m *Manager) Drop(id string) {
	m.end(func(w *worker) bool { return w.container.ContainerID == id })
}

func (m *Manager) end(over func(*worker) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, w := range m.workers {
		if over(w) {
			w.cancel()
			delete(m.workers, key)
		}
	}
}

// Result returns the last result of a probe, or Unknown without such a probe.
func (m *Manager) Result(id string, kind plan.Kind) plan.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[workerKey{id, kind}]; w != nil {
		return w.result
	}
	return plan.Unknown
}

// set stores a result and reports whether it has changed.
func (m *Manager) set(w *worker, r plan.Result) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	changed := w.result != r
	w.result = r
	return changed
}

func (m *Manager) started(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.workers[workerKey{id, plan.Startup}]
	return w == nil || w.result == plan.Success
}

type worker struct {
	manager   *Manager
	container Container
	kind      plan.Kind
	probe     *v1.Probe
	cancel    context.CancelFunc
	counter   counter
	result    plan.Result // guarded by manager.mu
}

func (w *worker) run(ctx context.Context) {
	period := time.Duration(max(w.probe.PeriodSeconds, 1)) * time.Second
	wait := w.firstDelay(period)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = period
		if w.kind != plan.Startup && !w.manager.started(w.container.ContainerID) {
			wait = min(period, time.Second) // poll for the end of the startup probe
			continue
		}
		if w.attempt(ctx) {
			return
		}
	}
}

// firstDelay returns the time until the first attempt: the rest of initialDelaySeconds, which counts from the
// container's start, plus the random delay of Spread.
func (w *worker) firstDelay(period time.Duration) time.Duration {
	initial := time.Duration(w.probe.InitialDelaySeconds) * time.Second
	left := min(max(initial-w.manager.now().Sub(w.container.Started), 0), initial) // the clock may have been set back
	if w.manager.now().Sub(w.manager.spread) < period {
		left += rand.N(period)
	}
	return left
}

// startTime is how long a command occupies a token of starts. Longer commands do not delay others.
const startTime = time.Second

// start limits the number of commands that are being started. Starting a process in a container takes much CPU time,
// and this time counts towards the probe's timeout. Without a limit, many concurrent starts would all time out.
func (m *Manager) start(ctx context.Context) (started func(), err error) {
	select {
	case m.starts <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	free := sync.OnceFunc(func() { <-m.starts })
	timer := time.AfterFunc(startTime, free)
	return func() {
		timer.Stop()
		free()
	}, nil
}

// attempt makes one attempt and reports whether the probe ends.
func (w *worker) attempt(ctx context.Context) bool {
	if w.probe.Exec != nil {
		started, err := w.manager.start(ctx)
		if err != nil {
			return true
		}
		defer started()
	}
	err := Run(ctx, w.probe, w.container.Target, w.manager.exec)
	if ctx.Err() != nil {
		return true // the probe was stopped: the error says nothing about the container
	}
	if _, unknown := errors.AsType[*UnknownError](err); unknown {
		w.manager.notify(Change{Container: w.container, Kind: w.kind, Err: err})
		return false // an unknown result neither counts as a failure nor resets the counter
	}
	verdict := w.counter.add(err == nil, int(max(w.probe.SuccessThreshold, 1)), int(max(w.probe.FailureThreshold, 1)))
	changed := false
	if verdict != plan.Unknown {
		changed = w.manager.set(w, verdict)
	}
	if err != nil || changed {
		w.manager.notify(Change{Container: w.container, Kind: w.kind, Result: verdict, Err: err, Verdict: changed})
	}
	// A startup probe ends with its first result. A failed liveness probe keeps its result until the container is
	// killed.
	return w.kind == plan.Startup && verdict != plan.Unknown || w.kind == plan.Liveness && verdict == plan.Failure
}

type counter struct {
	success bool
	n       int
}

// add counts an attempt. It returns Unknown until a threshold is reached.
func (c *counter) add(success bool, successThreshold, failureThreshold int) plan.Result {
	if c.success != success {
		c.success, c.n = success, 0
	}
	c.n++
	switch {
	case success && c.n >= successThreshold:
		return plan.Success
	case !success && c.n >= failureThreshold:
		return plan.Failure
	}
	return plan.Unknown
}
