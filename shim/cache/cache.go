// Package cache keeps the engine's lists of all sandboxes and of all pod containers until an event or a request of the
// shim may have changed them. A kubelet requests both lists every second. The engine's version is kept as long as the
// event stream is open, because each client begins with the version. docs/performance.md shows how much time this saves.
//
// Events only invalidate lists, so duplicate, late and reordered events do no harm. A list that was read during an
// event is discarded.
package cache

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/system"

	"github.com/crishim/crishim/shim/state"
)

type Engine interface {
	Events(ctx context.Context, o events.ListOptions) (<-chan events.Message, <-chan error)
	Ping(ctx context.Context) (types.Ping, error)
	Info(ctx context.Context) (system.Info, error)
	ServerVersion(ctx context.Context) (types.Version, error)
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
}

const (
	// maxAge limits the age of a list: the engine drops events for a slow client, and some changes cause no event.
	maxAge = 10 * time.Second
	// A hanging engine keeps its event stream open. Follow therefore pings the engine every pingInterval, and each ping
	// must be answered within pingTimeout.
	pingInterval, pingTimeout = 2 * time.Second, 4 * time.Second
)

type Cache struct {
	engine                            Engine
	maxAge, pingInterval, pingTimeout time.Duration

	mu         sync.Mutex // guards the fields below
	following  bool       // the event stream is open
	version    string     // of the followed engine
	generation uint64     // incremented by each invalidation
	lists      map[string]list
}

type list struct {
	containers []container.Summary
	read       time.Time
}

func New(engine Engine) *Cache {
	return &Cache{engine: engine, maxAge: maxAge, pingInterval: pingInterval, pingTimeout: pingTimeout, lists: map[string]list{}}
}

// ContainerList caches lists of all sandboxes or all pod containers, with or without a status filter, while the event
// stream is open. Other lists go to the engine.
func (c *Cache) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	if !cacheable(o) {
		return c.engine.ContainerList(ctx, o)
	}
	name, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	key := string(name)
	c.mu.Lock()
	kept, ok := c.lists[key]
	generation := c.generation
	c.mu.Unlock()
	if ok && time.Since(kept.read) < c.maxAge {
		return slices.Clone(kept.containers), nil
	}
	begin := time.Now()
	containers, err := c.engine.ContainerList(ctx, o)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.following && c.generation == generation {
		c.lists[key] = list{containers, begin}
	}
	return slices.Clone(containers), nil
}

func cacheable(o container.ListOptions) bool {
	labels := o.Filters.Get("label")
	return len(labels) == 1 && strings.HasPrefix(labels[0], state.LabelType+"=") && o.Filters.Len() == 1+min(1, len(o.Filters.Get("status"))) &&
		!o.Size && !o.Latest && o.Limit == 0 && o.Since == "" && o.Before == ""
}

// Invalidate drops all lists, including those being read.
func (c *Cache) Invalidate() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.generation++
	clear(c.lists)
}

// ServerVersion returns the cached version while the event stream is open, with only Version set, because the engine
// starts other programs to answer. Otherwise it asks the engine. An upgrade restarts the engine, which ends the stream.
func (c *Cache) ServerVersion(ctx context.Context) (types.Version, error) {
	c.mu.Lock()
	version, following := c.version, c.following
	c.mu.Unlock()
	if following && version != "" {
		return types.Version{Version: version}, nil
	}
	return c.engine.ServerVersion(ctx)
}

func (c *Cache) setFollowing(following bool, version string) {
	c.mu.Lock()
	c.following, c.version = following, version
	c.mu.Unlock()
	c.Invalidate()
}

// Follow invalidates lists on the engine's events until the stream or ctx ends or a ping fails.
func (c *Cache) Follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// The engine answers an Events request before the subscription starts. Because of the Since option it also sends the
	// events in between.
	info, err := c.engine.Info(ctx)
	if err != nil {
		return err
	}
	messages, errs := c.engine.Events(ctx, events.ListOptions{Since: info.SystemTime, Filters: filters.NewArgs(
		filters.Arg("type", string(events.ContainerEventType)),
		filters.Arg("type", string(events.ImageEventType)),   // may change image names in a list
		filters.Arg("type", string(events.NetworkEventType)), // may change container addresses in a list
	)})
	c.setFollowing(true, info.ServerVersion)
	defer c.setFollowing(false, "")
	silent := make(chan struct{})
	var ping sync.WaitGroup
	defer ping.Wait()
	defer cancel()
	ping.Go(func() { c.ping(ctx, silent) })
	for {
		select {
		case m := <-messages:
			if !harmless(m.Action) {
				c.Invalidate()
			}
		case err := <-errs:
			return errors.Join(errors.New("the event stream ended"), err)
		case <-silent:
			return errors.New("the docker engine does not answer")
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (c *Cache) ping(ctx context.Context, silent chan<- struct{}) {
	tick := time.NewTicker(c.pingInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		asked, cancel := context.WithTimeout(ctx, c.pingTimeout)
		_, err := c.engine.Ping(asked)
		if err != nil && asked.Err() != nil {
			close(silent)
			cancel()
			return
		}
		cancel()
	}
}

// harmless reports whether an action leaves all lists unchanged. Each run of a probe causes three such events.
func harmless(a events.Action) bool {
	word, _, _ := strings.Cut(string(a), ":") // the rest is the command of an exec
	switch events.Action(word) {
	case events.ActionExecCreate, events.ActionExecStart, events.ActionExecDie, events.ActionExecDetach,
		events.ActionAttach, events.ActionDetach, events.ActionResize, events.ActionTop, events.ActionExport, events.ActionCopy,
		events.ActionArchivePath, events.ActionExtractToDir:
		return true
	}
	return false
}
