package kuberuntime

import (
	"sync"
	"time"
)

// The kubelet's numbers, for pulls and for containers that crash.
const (
	backoffInitial = 10 * time.Second
	backoffMax     = 300 * time.Second
)

// backoff makes retries of the same thing rarer each time.
type backoff struct {
	mu      sync.Mutex
	entries map[string]backoffEntry
}

type backoffEntry struct {
	delay time.Duration
	last  time.Time
	told  time.Time // the failure whose wait was told of
}

func newBackoff() *backoff { return &backoff{entries: map[string]backoffEntry{}} }

// wait is how long key has to wait yet, when its last failure was at since.
func (b *backoff) wait(key string, since, now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry, ok := b.entries[key]
	if !ok || forgotten(entry, since) {
		return 0
	}
	// A clock that was put back does not make the wait longer.
	return min(max(since.Add(entry.delay).Sub(now), 0), entry.delay)
}

// next notes that key is tried now, after a failure at since, and doubles the wait after its next
// failure. How long key went well before counts, not how long it waited since.
func (b *backoff) next(key string, since, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry, ok := b.entries[key]
	if !ok || forgotten(entry, since) {
		b.entries[key] = backoffEntry{delay: backoffInitial, last: now}
		return
	}
	b.entries[key] = backoffEntry{delay: min(2*entry.delay, backoffMax), last: now}
}

// last is when key was last tried.
func (b *backoff) last(key string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[key].last
}

// tell says whether the wait after the failure at since is not told of yet: it is news once.
func (b *backoff) tell(key string, since time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry, ok := b.entries[key]
	if !ok || entry.told.Equal(since) {
		return false
	}
	entry.told = since
	b.entries[key] = entry
	return true
}

// reset forgets key after a success.
func (b *backoff) reset(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, key)
}

// forgotten says whether a failure at the given time comes long after the one before.
func forgotten(e backoffEntry, at time.Time) bool { return at.Sub(e.last) > 2*backoffMax }

// collect drops what is long past, so that the map does not grow with every pod ever run. What may
// still wait after a late failure stays.
func (b *backoff) collect(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, entry := range b.entries {
		if forgotten(entry, now.Add(-2*backoffMax)) {
			delete(b.entries, key)
		}
	}
}
