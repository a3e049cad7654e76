package shim

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"
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

// watchEngine is what a watch needs of the Docker client.
type watchEngine interface {
	Ping(ctx context.Context) (types.Ping, error)
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
}

// watch follows an engine as it comes and goes: at each connection it is checked
// again, and what pods left in the network while nobody looked is freed. The log
// tells changes, not attempts.
type watch struct {
	engine watchEngine
	node   *node
	follow func(context.Context) error // ends when the engine goes
	check  func(context.Context)       // looks at the networks of pods that are there already
	keep   func() error                // puts the engine's processes where they belong; nil: nowhere
	log    *slog.Logger
	pause  time.Duration // before the second attempt

	keepEvery time.Duration

	cancel context.CancelFunc
	done   chan struct{} // closed when the watch has ended
	last   string        // what was said last; only the watch itself uses it
}

func newWatch(engine watchEngine, n *node, follow func(context.Context) error, log *slog.Logger) *watch {
	return &watch{engine: engine, node: n, follow: follow, check: func(context.Context) {}, log: log, pause: firstPause, keepEvery: keepPeriod}
}

// start checks the engine once and goes on in the background.
func (w *watch) start(ctx context.Context) error {
	check, cancel := context.WithTimeout(ctx, startCheck)
	_, _, err := w.node.facts(check)
	cancel()
	if errdefs.IsFailedPrecondition(err) {
		return worded{err}
	}
	ctx, w.cancel = context.WithCancel(context.WithoutCancel(ctx))
	w.done = make(chan struct{})
	go func() {
		defer close(w.done)
		w.run(ctx)
	}()
	return nil
}

// stop ends the watch and waits for it.
func (w *watch) stop() {
	if w.cancel != nil {
		w.cancel()
		<-w.done
	}
}

func (w *watch) run(ctx context.Context) {
	for pause := w.pause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		if w.connect(ctx) {
			pause = w.pause
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// connect greets an engine and stays with it until it goes. It reports whether
// there was one.
func (w *watch) connect(ctx context.Context) bool {
	var info system.Info
	var api string
	_, err := w.engine.Ping(ctx) // agrees on the newest API version that both speak
	if err == nil {
		info, api, err = w.node.facts(ctx)
	}
	if err != nil {
		w.say(ctx, slog.LevelWarn, "the engine is not ready", sentence(err))
		return false
	}
	w.say(ctx, slog.LevelInfo, "the engine is ready", fmt.Sprintf("%s, API %s, cgroup driver %s", info.ServerVersion, api, info.CgroupDriver))
	var checking sync.WaitGroup
	untilGone, gone := context.WithCancel(ctx)
	if w.keep != nil {
		checking.Go(func() { w.keepInPlace(untilGone) })
	}
	checking.Go(func() { // CNI plugins may take their time
		if err := w.reclaim(untilGone); err != nil {
			w.log.Warn("not all networks of pods that are gone could be freed", "err", err)
		}
		w.check(untilGone)
	})
	err = w.follow(ctx)
	gone()
	checking.Wait()
	if ctx.Err() == nil {
		w.say(ctx, slog.LevelWarn, "the engine is gone", fmt.Sprint(err))
	}
	return true
}

// keepInPlace goes on until the engine is gone. What the host does not allow it says
// when it changes.
func (w *watch) keepInPlace(ctx context.Context) {
	again := time.NewTicker(w.keepEvery)
	defer again.Stop()
	var last string
	for {
		err := w.keep()
		now := fmt.Sprint(err)
		if err != nil && now != last {
			w.log.Warn("the host does not allow all of --runtime-cgroups", "err", err)
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
func (w *watch) say(ctx context.Context, level slog.Level, what, detail string) {
	if ctx.Err() != nil || w.last == what+detail {
		return
	}
	w.last = what + detail
	w.log.Log(ctx, level, what, "detail", detail)
}

// reclaim frees the addresses of sandboxes that somebody removed behind the
// shim's back.
func (w *watch) reclaim(ctx context.Context) error {
	plugin := w.node.networks.cni
	if plugin == nil {
		return nil
	}
	chosen := w.node.networks.Default == plugin
	gone, err := plugin.Reclaim(ctx, func(id string) bool { return w.exists(ctx, id) }, !chosen)
	if len(gone) > 0 {
		w.log.Info("freed the networks of pods that are gone", "ids", gone)
	}
	return err
}

// exists is asked about each sandbox after its record was read, so one that is
// just being set up by another process is never taken for gone.
func (w *watch) exists(ctx context.Context, id string) bool {
	_, err := w.engine.ContainerInspect(ctx, id)
	return !errdefs.IsNotFound(err)
}
