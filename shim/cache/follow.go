package cache

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sync/errgroup"

	"github.com/crishim/crishim/shim/state"
)

const (
	// parallelReads bounds how much is asked of the engine at one time.
	parallelReads = 8
	// A read that failed is tried again after retryPause.
	retryPause = time.Second
	// auditTime is how long an engine may take for its lists. One that does not
	// answer is no engine to speak for.
	auditTime = 30 * time.Second
	// One that hangs keeps its stream of events open, and with it all that is known.
	// It is asked for a sign of life after each heartbeatPause, and has heartbeatTime for it.
	heartbeatPause, heartbeatTime = 2 * time.Second, 4 * time.Second
)

var errSilent = errors.New("the docker engine does not answer")

// Follow keeps the cache in step with the engine until its event stream ends,
// or the context does. Then the cache knows nothing.
func (c *Cache) Follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	// The engine answers before it listens on our behalf. What happens in
	// between it remembers, and tells when it is asked for the time since then.
	info, err := c.engine.Info(ctx)
	if err != nil {
		cancel()
		return err
	}
	messages, errs := c.engine.Events(ctx, events.ListOptions{Since: info.SystemTime, Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)),
		filters.Arg("type", string(events.ImageEventType)),
		filters.Arg("type", string(events.NetworkEventType)),
		filters.Arg("type", string(events.DaemonEventType)),
	)})
	c.mu.Lock()
	c.reset(syncing)
	if t, err := time.Parse(time.RFC3339Nano, info.SystemTime); err == nil {
		c.asOf = t.UnixNano()
	}
	c.mu.Unlock()
	broken := make(chan error, 2)
	var readers sync.WaitGroup
	readers.Go(func() { broken <- c.read(ctx) })
	readers.Go(func() { broken <- c.heartbeat(ctx) })
	err = c.receive(ctx, messages, errs, broken)
	c.mu.Lock()
	c.reset(off) // before the reader has come to its end, nothing is answered any more
	c.mu.Unlock()
	cancel()
	readers.Wait()
	return err
}

// heartbeat ends when the engine is silent. An answer that is an error is a sign of life.
func (c *Cache) heartbeat(ctx context.Context) error {
	tick := time.NewTicker(c.heartbeatPause)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		asked, cancel := context.WithTimeout(ctx, c.heartbeatTime)
		_, err := c.engine.Ping(asked)
		silent := err != nil && asked.Err() != nil
		cancel()
		if silent {
			return errSilent
		}
	}
}

// receive never asks the engine for anything: one that is slow to listen misses
// events.
func (c *Cache) receive(ctx context.Context, messages <-chan events.Message, errs, broken <-chan error) error {
	for {
		select {
		case m := <-messages:
			c.handle(m)
		case err := <-errs:
			return errors.Join(errors.New("the event stream ended"), err)
		case err := <-broken:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// handle invalidates what an event is about.
func (c *Cache) handle(m events.Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.clock
	switch m.Type {
	case events.ContainerEventType:
		c.handleContainer(m)
	case events.ImageEventType:
		c.invalidateImages()
	case events.NetworkEventType:
		if id := m.Actor.Attributes["container"]; c.containers[id] != nil {
			c.invalidateLocked(id)
		}
	case events.DaemonEventType:
		c.about = about{generation: c.tick()}
	}
	c.asOf = max(c.asOf, m.TimeNano)
	if c.clock != before {
		c.notify()
	}
}

func (c *Cache) handleContainer(m events.Message) {
	_, pods := m.Actor.Attributes[state.LabelType]
	switch {
	case m.Action == events.ActionCommit:
		c.invalidateImages()
	case harmless(m.Action):
	case pods || c.containers[m.Actor.ID] != nil:
		c.invalidateLocked(m.Actor.ID)
	}
}

// harmless actions leave what is kept of a container as it is. Probes alone
// would have every container read again all the time.
func harmless(a events.Action) bool {
	word, _, _ := strings.Cut(string(a), ":") // an exec's command stands behind it
	switch events.Action(word) {
	case events.ActionExecCreate, events.ActionExecStart, events.ActionExecDie, events.ActionExecDetach,
		events.ActionAttach, events.ActionDetach, events.ActionResize, events.ActionTop, events.ActionExport, events.ActionCopy,
		events.ActionArchivePath, events.ActionExtractToDir:
		return true
	}
	return false
}

// read reads everything once, and then what is stale, until the context ends
// or the engine does not answer any more.
func (c *Cache) read(ctx context.Context) error {
	if err := c.sync(ctx); err != nil {
		return err
	}
	audit := time.NewTicker(c.audit)
	defer audit.Stop()
	for {
		var retry <-chan time.Time
		if err := c.catchUp(ctx); err != nil {
			c.log.Debug("what changed in the engine cannot be read", "err", err)
			retry = time.After(retryPause)
		}
		select {
		case <-c.wake:
		case <-retry:
		case <-audit.C:
			if err := c.compare(ctx); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sync lists the containers and reads them. One that cannot be read stays
// stale and is no reason to give up.
func (c *Cache) sync(ctx context.Context) error {
	list, err := c.engine.ContainerList(ctx, podContainers())
	if err != nil {
		return fmt.Errorf("list the pods' containers: %w", err)
	}
	for _, s := range list {
		c.invalidate(s.ID)
	}
	if err := c.catchUp(ctx); err != nil {
		c.log.Debug("not everything in the engine can be read", "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() == nil && c.phase == syncing {
		c.phase = live
	}
	return ctx.Err()
}

// catchUp reads what is stale.
func (c *Cache) catchUp(ctx context.Context) error {
	c.mu.Lock()
	ids := slices.Collect(maps.Keys(c.stale))
	c.mu.Unlock()
	var g errgroup.Group
	g.SetLimit(parallelReads)
	for _, id := range ids {
		g.Go(func() error { return c.refresh(ctx, id) })
	}
	err := errors.Join(g.Wait(), c.refreshAbout(ctx))
	images := c.refreshImages(ctx)
	if images == nil {
		images = c.warm(ctx)
	}
	return errors.Join(err, images)
}

// compare looks for what no event told: it invalidates what the engine's lists
// show differently, and what lists do not show.
func (c *Cache) compare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, auditTime)
	defer cancel()
	containers, err := c.engine.ContainerList(ctx, podContainers())
	if err != nil {
		return fmt.Errorf("list the pods' containers: %w", err)
	}
	images, err := c.engine.ImageList(ctx, image.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the images: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]bool{}
	for _, s := range containers {
		seen[s.ID] = true
		// A start that failed shows in no list, and may have no event.
		if e := c.containers[s.ID]; e == nil || !c.stale[s.ID] && (s.State != e.detail.State.Status || s.State == created) {
			c.invalidateLocked(s.ID)
		}
	}
	for id := range c.containers {
		if !seen[id] {
			c.invalidateLocked(id)
		}
	}
	if c.images.fresh && !sameImages(c.images.list, images) {
		c.invalidateImages()
	}
	c.about = about{generation: c.tick()}
	return nil
}

// created is the engine's word for a container that has not run.
const created = "created"
