package node

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/docker"
)

const (
	startTimeout = 5 * time.Second
	// Pause between attempts to reach the engine. It doubles each time.
	firstPause, lastPause = time.Second, 30 * time.Second
	// keepInterval is the interval between calls of Keep, as in dockershim's container manager.
	keepInterval = 5 * time.Minute
)

type WatchEngine interface {
	Ping(ctx context.Context) (types.Ping, error)
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
}

// Watch tracks the availability of an engine. It logs changes, not attempts.
type Watch struct {
	Node   *Service
	Engine WatchEngine
	Follow func(context.Context) error // returns when the engine is gone
	Check  func(context.Context)       // checks the networks of existing pods
	Keep   func() error                // moves the engine's processes to their cgroup; may be nil
	Log    *slog.Logger

	pause, keepInterval time.Duration // 0: firstPause and keepInterval

	cancel context.CancelFunc
	done   chan struct{} // closed when the watch has ended
	last   string        // last logged message; used by the watch goroutine only
}

// Start returns an error for an incompatible engine, but not for an unavailable one.
func (w *Watch) Start(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if _, _, err := w.Node.check(bounded); errdefs.IsFailedPrecondition(err) {
		return docker.Worded{Err: err}
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		first := cmp.Or(w.pause, firstPause)
		for pause := first; ctx.Err() == nil; pause = min(2*pause, lastPause) {
			if w.connect(ctx) {
				pause = first
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
		}
	}()
	return nil
}

func (w *Watch) Stop() {
	if w.cancel != nil {
		w.cancel()
		<-w.done
	}
}

func (w *Watch) connect(ctx context.Context) bool {
	info, api, err := w.Node.check(ctx)
	if err != nil {
		w.report(ctx, slog.LevelWarn, "the engine is not ready", docker.Text(err))
		return false
	}
	w.report(ctx, slog.LevelInfo, "the engine is ready", fmt.Sprintf("%s, API %s, cgroup driver %s", info.ServerVersion, api, info.CgroupDriver))
	var tasks sync.WaitGroup
	untilGone, gone := context.WithCancel(ctx)
	if w.Keep != nil {
		tasks.Go(func() { w.keep(untilGone) })
	}
	tasks.Go(func() { // CNI plugins may be slow
		w.reclaim(untilGone)
		w.Check(untilGone)
	})
	err = w.Follow(ctx)
	gone()
	tasks.Wait()
	if ctx.Err() == nil {
		w.report(ctx, slog.LevelWarn, "the engine is gone", fmt.Sprint(err))
	}
	return true
}

func (w *Watch) report(ctx context.Context, level slog.Level, what, detail string) {
	if ctx.Err() != nil || w.last == what+detail {
		return
	}
	w.last = what + detail
	w.Log.Log(ctx, level, what, "detail", detail)
}

func (w *Watch) keep(ctx context.Context) {
	tick := time.NewTicker(cmp.Or(w.keepInterval, keepInterval))
	defer tick.Stop()
	var last string
	for {
		err := w.Keep()
		now := fmt.Sprint(err)
		if err != nil && now != last {
			w.Log.Warn("the host does not allow all of --runtime-cgroups", "err", err)
		}
		last = now
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// reclaim releases the addresses of sandboxes that were removed without the shim. It looks up each sandbox after
// reading its record, so a sandbox that is being set up is not mistaken for a removed one.
func (w *Watch) reclaim(ctx context.Context) {
	n := w.Node.Networks
	if n.CNI == nil {
		return
	}
	exists := func(id string) bool {
		_, err := w.Engine.ContainerInspect(ctx, id)
		return !errdefs.IsNotFound(err)
	}
	freed, err := n.CNI.Reclaim(ctx, exists, n.Default != n.CNI)
	if len(freed) > 0 {
		w.Log.Info("freed the networks of pods that are gone", "ids", freed)
	}
	if err != nil {
		w.Log.Warn("not all networks of pods that are gone could be freed", "err", err)
	}
}
