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

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sync/errgroup"

	"github.com/crishim/crishim/shim/state"
)

const (
	retryPause = time.Second
	// auditTime is how long an engine may take for its lists.
	auditTime = 30 * time.Second
	// An engine that hangs keeps its event stream open. It is pinged after each
	// heartbeatPause, and has heartbeatTime to answer.
	heartbeatPause, heartbeatTime = 2 * time.Second, 4 * time.Second
)

var errSilent = errors.New("the docker engine does not answer")

// Follow keeps the cache up to date until the engine's event stream or the context ends.
// After that the cache is empty.
func (c *Cache) Follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	// The engine answers before it begins to listen. It sends the events of the time between
	// when it is asked for those since now.
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
	c.reset(off) // from now on nothing is answered, also before the readers have ended
	c.mu.Unlock()
	cancel()
	readers.Wait()
	return err
}

// heartbeat ends when the engine does not answer. An error is an answer.
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

// receive makes no call to the engine: a slow client misses events.
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
		_, pods := m.Actor.Attributes[state.LabelType]
		switch {
		case m.Action == events.ActionCommit:
			c.invalidateImages()
		case harmless(m.Action):
		case pods || c.containers[m.Actor.ID] != nil:
			c.invalidate(m.Actor.ID)
		}
	case events.ImageEventType:
		c.invalidateImages()
	case events.NetworkEventType:
		if id := m.Actor.Attributes["container"]; c.containers[id] != nil {
			c.invalidate(id)
		}
	case events.DaemonEventType:
		c.about = about{generation: c.tick()}
	}
	c.asOf = max(c.asOf, m.TimeNano)
	if c.clock != before {
		c.notify()
	}
}

// harmless reports whether an action changes nothing in the cache. Probes alone would have
// every container read again all the time.
func harmless(a events.Action) bool {
	word, _, _ := strings.Cut(string(a), ":") // an exec's command follows
	switch events.Action(word) {
	case events.ActionExecCreate, events.ActionExecStart, events.ActionExecDie, events.ActionExecDetach,
		events.ActionAttach, events.ActionDetach, events.ActionResize, events.ActionTop, events.ActionExport, events.ActionCopy,
		events.ActionArchivePath, events.ActionExtractToDir:
		return true
	}
	return false
}

// read reads everything once, and then what is stale, until the context ends or the engine
// does not answer.
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

// sync lists the containers and reads them. One that cannot be read stays stale.
func (c *Cache) sync(ctx context.Context) error {
	list, err := c.engine.ContainerList(ctx, podContainers())
	if err != nil {
		return fmt.Errorf("list the pods' containers: %w", err)
	}
	c.mu.Lock()
	for _, s := range list {
		if c.phase != off {
			c.invalidate(s.ID)
		}
	}
	c.mu.Unlock()
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
	g.SetLimit(8)
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

// compare invalidates what differs from the engine's lists, and what is not in lists.
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
		// A failed start is in no list, and may have no event.
		if e := c.containers[s.ID]; e == nil || !c.stale[s.ID] && (s.State != e.detail.State.Status || s.State == container.StateCreated) {
			c.invalidate(s.ID)
		}
	}
	for id := range c.containers {
		if !seen[id] {
			c.invalidate(id)
		}
	}
	if c.images.fresh && !sameImages(c.images.list, images) {
		c.invalidateImages()
	}
	c.about = about{generation: c.tick()}
	return nil
}
