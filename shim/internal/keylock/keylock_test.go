package keylock

import (
	"context"
	"errors"
	"sync"
	"testing"
)

func TestLockLetsOneInAtATime(t *testing.T) {
	t.Parallel()
	var (
		lock   Lock
		wait   sync.WaitGroup
		inside int
	)
	for range 50 {
		wait.Go(func() {
			free, err := lock.Lock(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			defer free()
			inside++
			if inside != 1 {
				t.Errorf("got %d inside", inside)
			}
			inside--
		})
	}
	wait.Wait()
	if len(lock.held) != 0 {
		t.Errorf("got %d keys left", len(lock.held))
	}
}

func TestAWaiterGivesUpAndOtherKeysAreFree(t *testing.T) {
	t.Parallel()
	var lock Lock
	free, err := lock.Lock(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	defer free()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := lock.Lock(ctx, "a"); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want cancelled", err)
	}
	other, err := lock.Lock(ctx, "b")
	if err != nil {
		t.Fatal(err)
	}
	other()
}
