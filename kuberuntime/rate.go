package kuberuntime

import (
	"context"
	"sync"
	"time"
)

// rate is a token bucket; nil allows everything.
type rate struct {
	mu         sync.Mutex
	qps, burst float64
	tokens     float64
	last       time.Time
	now        func() time.Time
}

func newRate(qps float64, burst int, now func() time.Time) *rate {
	if qps <= 0 {
		return nil
	}
	return &rate{qps: qps, burst: float64(max(burst, 1)), tokens: float64(max(burst, 1)), last: now(), now: now}
}

func (r *rate) allow() bool {
	if r == nil {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	r.tokens = min(r.burst, r.tokens+max(now.Sub(r.last).Seconds(), 0)*r.qps)
	r.last = now
	if r.tokens < 1 {
		return false
	}
	r.tokens--
	return true
}

// wait takes a token when there is one.
func (r *rate) wait(ctx context.Context) error {
	for !r.allow() {
		timer := time.NewTimer(r.missing())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		}
	}
	return nil
}

// missing is how long it takes until there is a token.
func (r *rate) missing() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Duration((1 - r.tokens) / r.qps * float64(time.Second))
}
