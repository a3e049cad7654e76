// Package keylock provides a lock per key.
package keylock

import (
	"context"
	"sync"
)

// Lock serializes work per key. A waiter gives up when its context ends.
type Lock struct {
	mu   sync.Mutex // guards held
	held map[string]chan struct{}
}

func (k *Lock) Lock(ctx context.Context, key string) (func(), error) {
	for {
		k.mu.Lock()
		busy, taken := k.held[key]
		if !taken {
			if k.held == nil {
				k.held = map[string]chan struct{}{}
			}
			done := make(chan struct{})
			k.held[key] = done
			k.mu.Unlock()
			return func() { k.free(key, done) }, nil
		}
		k.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (k *Lock) free(key string, done chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.held, key)
	close(done)
}
