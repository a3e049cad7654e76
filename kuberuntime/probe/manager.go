// Package probe runs liveness, readiness and startup probes: a command in the container,
// an HTTP request, a TCP connection or a gRPC health check. Run makes one attempt; Manager
// runs them periodically for the containers that it watches, counts to the thresholds, and
// returns the last result.
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
	// WasStarted and WasReady are results of an earlier process. A successful startup probe is not repeated. A container
	// stays ready until its readiness probe has a new verdict.
	WasStarted, WasReady bool
}

// Change is a new verdict, or a failed attempt on the way to one.
type Change struct {
	Container Container
	Kind      plan.Kind
	Result    plan.Result
	Err       error // of the attempt
	Verdict   bool  // the result is new, not only the attempt
}

// Manager probes containers, as the kubelet's prober. Keep ends the probes of ended containers.
type Manager struct {
	ctx    context.Context
	cancel context.CancelFunc
	exec   Exec
	notify func(Change)
	now    func() time.Time
	spread time.Time     // see Spread; zero: never
	starts chan struct{} // has a token for each command that is being started

	wg      sync.WaitGroup
	mu      sync.Mutex
	workers map[workerKey]*worker
}

type workerKey struct {
	id   string
	kind plan.Kind
}

// NewManager makes a manager; notify is called for every failure and every new verdict,
// from several goroutines.
func NewManager(exec Exec, notify func(Change)) *Manager {
	ctx, cancel := context.WithCancel(context.Background())
	return &Manager{
		ctx: ctx, cancel: cancel, exec: exec, notify: notify, now: time.Now,
		starts: make(chan struct{}, 2*runtime.GOMAXPROCS(0)), workers: map[workerKey]*worker{},
	}
}

// Spread delays the first attempt of each probe by a random part of its period, until a period has passed since: a
// process that has just started finds many containers at once. The kubelet does the same.
func (m *Manager) Spread() { m.spread = m.now() }

func (m *Manager) Close() {
	m.cancel()
	m.wg.Wait()
}

// Watch starts the probes of a container that are not running yet.
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

// Result returns the last verdict. Without such a probe it is Unknown.
func (m *Manager) Result(id string, kind plan.Kind) plan.Result {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.workers[workerKey{id, kind}]; w != nil {
		return w.result
	}
	return plan.Unknown
}

// set stores a verdict and reports whether it is new.
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
			wait = min(period, time.Second) // soon after the startup probe lets it
			continue
		}
		if w.attempt(ctx) {
			return
		}
	}
}

// firstDelay returns what is left of the initial delay, which counts from the container's start, and the part of the
// period of Spread.
func (w *worker) firstDelay(period time.Duration) time.Duration {
	initial := time.Duration(w.probe.InitialDelaySeconds) * time.Second
	left := min(max(initial-w.manager.now().Sub(w.container.Started), 0), initial) // the clock may have been put back
	if w.manager.now().Sub(w.manager.spread) < period {
		left += rand.N(period)
	}
	return left
}

// startTime is how long a command counts as being started. Longer commands do not delay others.
const startTime = time.Second

// start limits the commands that are being started. Starting a process in a container takes much CPU time, which counts
// towards the probe's timeout: many concurrent starts would all time out.
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

// attempt probes once and reports whether the probe is over.
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
		return true // the container is gone, or we are: that says nothing about its health
	}
	if _, unknown := errors.AsType[*UnknownError](err); unknown {
		w.manager.notify(Change{Container: w.container, Kind: w.kind, Err: err})
		return false // ignored: it neither counts as a failure nor resets the count
	}
	verdict := w.counter.add(err == nil, int(max(w.probe.SuccessThreshold, 1)), int(max(w.probe.FailureThreshold, 1)))
	changed := false
	if verdict != plan.Unknown {
		changed = w.manager.set(w, verdict)
	}
	if err != nil || changed {
		w.manager.notify(Change{Container: w.container, Kind: w.kind, Result: verdict, Err: err, Verdict: changed})
	}
	// A startup probe with a verdict is done. A container that fails is killed: the verdict stays until then.
	return w.kind == plan.Startup && verdict != plan.Unknown || w.kind == plan.Liveness && verdict == plan.Failure
}

type counter struct {
	success bool
	n       int
}

// add returns Unknown while a threshold is not reached.
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
