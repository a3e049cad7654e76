package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestPullsBeyondTheRate: a pull beyond the rate fails, or waits with PullsWait.
func TestPullsBeyondTheRate(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		t.Run(fmt.Sprint("wait ", wait), func(t *testing.T) {
			t.Parallel()
			qps := 1e-6 // one pull in eleven days
			if wait {
				qps = 100
			}
			f := newFixture(t, func(o *Options) { o.PullQPS, o.PullBurst, o.PullsWait = qps, 1, wait })
			failed := 0
			for i := range 5 {
				_, err := f.PullImage(deadline(t), fmt.Sprintf("busybox:%d", i%2+1), nil, nil)
				if err != nil && !strings.Contains(err.Error(), "QPS exceeded") {
					t.Fatal(err)
				}
				if err != nil {
					failed++
				}
			}
			if want := map[bool]int{false: 4, true: 0}[wait]; failed != want {
				t.Errorf("%d of 5 pulls failed, want %d", failed, want)
			}
		})
	}
}

// TestPullThatWaitsEndsWithItsContext: a waiting pull ends with its context.
func TestPullThatWaitsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t, func(o *Options) { o.PullQPS, o.PullBurst, o.PullsWait = 1e-6, 1, true })
	if _, err := f.PullImage(deadline(t), "busybox:1", nil, nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.PullImage(ctx, "busybox:2", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want it cancelled", err)
	}
}
