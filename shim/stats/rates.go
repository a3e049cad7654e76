package stats

import (
	"sync"
	"time"
)

// rateWindow is how far apart two samples must be to give a rate: less is
// mostly noise.
const rateWindow = 500 * time.Millisecond

// rates turns processor time into a rate with the help of earlier calls. A
// caller that asks for the first time gets none.
type rates struct {
	mu   sync.Mutex // guards last
	last map[string]point
}

type point struct {
	at    time.Time
	usage uint64
	rate  *uint64
}

// add notes a sample and gives nanoseconds of processor time per second.
func (r *rates) add(id string, at time.Time, usage uint64) *uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last == nil {
		r.last = map[string]point{}
	}
	before, ok := r.last[id]
	elapsed := at.Sub(before.at)
	switch {
	case !ok || usage < before.usage || elapsed < 0: // the clock may have been put back
		r.last[id] = point{at: at, usage: usage}
		return nil
	case elapsed < rateWindow:
		return before.rate
	}
	rate := uint64(float64(usage-before.usage) / elapsed.Seconds())
	r.last[id] = point{at: at, usage: usage, rate: &rate}
	return &rate
}

// keep forgets every id that the function says no to.
func (r *rates) keep(alive func(id string) bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.last {
		if !alive(id) {
			delete(r.last, id)
		}
	}
}
