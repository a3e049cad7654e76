package container

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestConcurrentStatusesInspectAnImageOnce includes a first call that is cancelled, which the others must survive.
func TestConcurrentStatusesInspectAnImageOnce(t *testing.T) {
	t.Parallel()
	for name, cancelled := range map[string]bool{"all succeed": false, "first is cancelled": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				id := f.create(t, nil)
				inspections := 0
				f.engine.Fail("ImageInspect", func(ctx context.Context) error {
					inspections++
					select {
					case <-time.After(time.Second):
						return nil
					case <-ctx.Done():
						return ctx.Err()
					}
				})
				status := func(ctx context.Context) error {
					_, err := f.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
					return err
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				first, second := make(chan error, 1), make(chan error, 1)
				go func() { first <- status(ctx) }()
				synctest.Wait()
				go func() { second <- status(t.Context()) }()
				synctest.Wait()
				want := 1
				if cancelled {
					cancel()
					want = 2
				}
				if err := <-first; (err != nil) != cancelled {
					t.Errorf("the first call got %v", err)
				}
				if err := <-second; err != nil {
					t.Errorf("the second call got %v", err)
				}
				if inspections != want {
					t.Errorf("got %d inspections, want %d", inspections, want)
				}
			})
		})
	}
}
