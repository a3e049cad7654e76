package probe

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
)

// worker is one probe of one container.
type worker struct {
	manager   *Manager
	container Container
	kind      Kind
	probe     *v1.Probe
	cancel    context.CancelFunc
	counter   counter
	result    Result // guarded by manager.mu
}

// run probes until the context ends, or the verdict is final.
func (w *worker) run(ctx context.Context) {
	period := time.Duration(max(w.probe.PeriodSeconds, 1)) * time.Second
	wait := w.firstDelay(period)
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		wait = period
		if w.kind != Startup && !w.manager.started(w.container.ContainerID) {
			wait = min(period, time.Second) // soon after the startup probe lets it
			continue
		}
		if w.attempt(ctx) {
			return
		}
	}
}

// firstDelay is what is left of the initial delay. Counted from the container's start it
// is over for a container that was found running.
func (w *worker) firstDelay(period time.Duration) time.Duration {
	initial := time.Duration(w.probe.InitialDelaySeconds) * time.Second
	left := min(max(initial-w.manager.now().Sub(w.container.Started), 0), initial) // the clock may have been put back
	if left == 0 && w.manager.spread != nil {
		return w.manager.spread(period)
	}
	return left
}

// attempt probes once and reports whether the probe is over.
func (w *worker) attempt(ctx context.Context) bool {
	err := Run(ctx, w.probe, w.container.Target, w.manager.exec)
	if ctx.Err() != nil {
		return true // the container is gone, or we are: that says nothing about its health
	}
	var unknown *UnknownError
	if errors.As(err, &unknown) {
		w.manager.notify(Change{Container: w.container, Kind: w.kind, Err: err})
		return false // thrown away: neither a failure nor the end of a row of them
	}
	verdict := w.counter.add(err == nil, int(max(w.probe.SuccessThreshold, 1)), int(max(w.probe.FailureThreshold, 1)))
	changed := false
	if verdict != Unknown {
		changed = w.manager.set(w, verdict)
	}
	if err != nil || changed {
		w.manager.notify(Change{Container: w.container, Kind: w.kind, Result: verdict, Err: err, Verdict: changed})
	}
	// A startup probe that has spoken is done. A container that fails is killed, and its
	// successor is another container: the verdict stays until then.
	return w.kind == Startup && verdict != Unknown || w.kind == Liveness && verdict == Failure
}

// counter counts equal results in a row.
type counter struct {
	success bool
	n       int
}

// add says Unknown while a threshold is not reached.
func (c *counter) add(success bool, successThreshold, failureThreshold int) Result {
	if c.success != success {
		c.success, c.n = success, 0
	}
	c.n++
	switch {
	case success && c.n >= successThreshold:
		return Success
	case !success && c.n >= failureThreshold:
		return Failure
	}
	return Unknown
}
