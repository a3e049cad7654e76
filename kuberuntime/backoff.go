package kuberuntime

import (
	"maps"
	"sync"
	"time"
)

// The kubelet's numbers, for pulls and for containers that crash.
const (
	backoffInitial = 10 * time.Second
	backoffMax     = 300 * time.Second
)

// backoff makes retries of the same thing rarer each time. It is ours because client-go's, which
// the kubelet has, neither tells how long is left nor when a key was last tried, and forgets in GC
// what may still wait after a late failure: it would take a second map with the same times.
type backoff struct {
	mu      sync.Mutex
	entries map[string]backoffEntry
}

type backoffEntry struct {
	delay time.Duration
	last  time.Time
	told  time.Time // the failure whose wait is no news
}

func newBackoff() *backoff { return &backoff{entries: map[string]backoffEntry{}} }

// wait returns how long key has to wait yet after its last failure, at since, and whether that is
// news, which it is once.
func (b *backoff) wait(key string, since, now time.Time) (left time.Duration, news bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	entry, ok := b.entries[key]
	// A clock that was put back does not make the wait longer.
	left = min(since.Add(entry.delay).Sub(now), entry.delay)
	if !ok || forgotten(entry, since) || left <= 0 {
		return 0, false
	}
	news = !entry.told.Equal(since)
	entry.told = since
	b.entries[key] = entry
	return left, news
}

// next notes that key is tried now, after a failure at since, and doubles the wait after its next
// failure. How long key went well before counts, not how long it waited since.
func (b *backoff) next(key string, since, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delay := backoffInitial
	if entry, ok := b.entries[key]; ok && !forgotten(entry, since) {
		delay = min(2*entry.delay, backoffMax)
	}
	b.entries[key] = backoffEntry{delay: delay, last: now}
}

// last returns when key was last tried.
func (b *backoff) last(key string) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.entries[key].last
}

// reset forgets key after a success.
func (b *backoff) reset(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.entries, key)
}

// forgotten reports whether a failure at the given time comes long after the one before.
func forgotten(e backoffEntry, at time.Time) bool { return at.Sub(e.last) > 2*backoffMax }

// collect drops what is long past, so that the map does not grow with every pod ever run, but not
// what may still wait after a late failure.
func (b *backoff) collect(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	maps.DeleteFunc(b.entries, func(_ string, e backoffEntry) bool { return forgotten(e, now.Add(-2*backoffMax)) })
}
