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

// TestSharedInspectionKeepsTheCallersTime: a call ends by its own limit, although the inspection of another goes on.
func TestSharedInspectionKeepsTheCallersTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		id := f.create(t, nil)
		f.engine.Fail("ImageInspect", func(context.Context) error {
			time.Sleep(time.Minute)
			return nil
		})
		go func() { _, _ = f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id}) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := f.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id}); err == nil || time.Since(start) != time.Second {
			t.Errorf("got %v after %s", err, time.Since(start))
		}
		time.Sleep(time.Minute) // the first call ends
	})
}
