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
	"github.com/docker/docker/api/types/system"

	"github.com/crishim/crishim/shim/docker"
)

const (
	// startCheck is how long a start waits for an engine to say whether it fits.
	startCheck = 5 * time.Second
	// An engine that is away is asked again after a pause that doubles.
	firstPause, lastPause = time.Second, 30 * time.Second
	// keepPeriod is how often dockershim's container manager looked for processes that
	// the engine had started meanwhile.
	keepPeriod = 5 * time.Minute
)

// WatchEngine is what a watch needs of the Docker client.
type WatchEngine interface {
	Ping(ctx context.Context) (types.Ping, error)
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
}

// Watch follows an engine as it comes and goes: at each connection it is checked
// again, and the networks of pods that were removed meanwhile are freed. The log
// has changes, not attempts.
type Watch struct {
	Node   *Service
	Engine WatchEngine
	Follow func(context.Context) error // returns when the engine goes
	Check  func(context.Context)       // checks the networks of pods that exist
	Keep   func() error                // puts the engine's processes into their cgroup; nil: nothing
	Log    *slog.Logger

	pause, keepInterval time.Duration // 0: firstPause and keepPeriod

	cancel context.CancelFunc
	done   chan struct{} // closed when the watch has ended
	last   string        // what was logged last; only the watch itself uses it
}

// Start checks the engine once and goes on in the background.
func (w *Watch) Start(ctx context.Context) error {
	check, cancel := context.WithTimeout(ctx, startCheck)
	_, _, err := w.Node.facts(check)
	cancel()
	if errdefs.IsFailedPrecondition(err) {
		return docker.Worded{Err: err}
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		w.run(ctx)
	}()
	return nil
}

// Stop ends the watch and waits for it.
func (w *Watch) Stop() {
	if w.cancel != nil {
		w.cancel()
		<-w.done
	}
}

func (w *Watch) run(ctx context.Context) {
	for pause := cmp.Or(w.pause, firstPause); ctx.Err() == nil; pause = min(2*pause, lastPause) {
		if w.connect(ctx) {
			pause = cmp.Or(w.pause, firstPause)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// connect greets an engine and stays with it until it goes. It reports whether
// there was one.
func (w *Watch) connect(ctx context.Context) bool {
	var info system.Info
	var api string
	_, err := w.Engine.Ping(ctx) // agrees on the newest API version that both speak
	if err == nil {
		info, api, err = w.Node.facts(ctx)
	}
	if err != nil {
		w.say(ctx, slog.LevelWarn, "the engine is not ready", docker.Text(err))
		return false
	}
	w.say(ctx, slog.LevelInfo, "the engine is ready", fmt.Sprintf("%s, API %s, cgroup driver %s", info.ServerVersion, api, info.CgroupDriver))
	var checking sync.WaitGroup
	untilGone, gone := context.WithCancel(ctx)
	if w.Keep != nil {
		checking.Go(func() { w.keepInPlace(untilGone) })
	}
	checking.Go(func() { // CNI plugins may take their time
		if err := w.reclaim(untilGone); err != nil {
			w.Log.Warn("not all networks of pods that are gone could be freed", "err", err)
		}
		w.Check(untilGone)
	})
	err = w.Follow(ctx)
	gone()
	checking.Wait()
	if ctx.Err() == nil {
		w.say(ctx, slog.LevelWarn, "the engine is gone", fmt.Sprint(err))
	}
	return true
}

// keepInPlace goes on until the engine is gone. What the host does not allow it says
// when it changes.
func (w *Watch) keepInPlace(ctx context.Context) {
	again := time.NewTicker(cmp.Or(w.keepInterval, keepPeriod))
	defer again.Stop()
	var last string
	for {
		err := w.Keep()
		now := fmt.Sprint(err)
		if err != nil && now != last {
			w.Log.Warn("the host does not allow all of --runtime-cgroups", "err", err)
		}
		last = now
		select {
		case <-again.C:
		case <-ctx.Done():
			return
		}
	}
}

// say logs what was not said before.
func (w *Watch) say(ctx context.Context, level slog.Level, what, detail string) {
	if ctx.Err() != nil || w.last == what+detail {
		return
	}
	w.last = what + detail
	w.Log.Log(ctx, level, what, "detail", detail)
}

// reclaim frees the addresses of sandboxes that somebody removed behind the
// shim's back.
func (w *Watch) reclaim(ctx context.Context) error {
	plugin := w.Node.networks.CNI
	if plugin == nil {
		return nil
	}
	chosen := w.Node.networks.Default == plugin
	gone, err := plugin.Reclaim(ctx, func(id string) bool { return w.exists(ctx, id) }, !chosen)
	if len(gone) > 0 {
		w.Log.Info("freed the networks of pods that are gone", "ids", gone)
	}
	return err
}

// exists is asked about each sandbox after its record was read, so one that is
// just being set up by another process is never taken for gone.
func (w *Watch) exists(ctx context.Context, id string) bool {
	_, err := w.Engine.ContainerInspect(ctx, id)
	return !errdefs.IsNotFound(err)
}
