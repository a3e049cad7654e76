package cache

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/crishim/crishim/shim/state"
)

// entry is one of the pods' containers, sandboxes included.
type entry struct {
	generation uint64 // changes with each reason to read it again
	detail     container.InspectResponse
	born       string // sorts by age, and among equals by id
	second     int64  // of its creation
}

// know takes what the engine says of a container. A list of a thousand would spend a
// third of its time on finding out again what does not change.
func (e *entry) know(d container.InspectResponse) {
	e.detail, e.born, e.second = d, d.Created+d.ID, 0
	if t, err := time.Parse(time.RFC3339Nano, d.Created); err == nil {
		e.second = t.Unix()
	}
}

// fullID is the length of an engine id. Names and parts of ids are looked up by
// the engine, which knows all its containers.
const fullID = 64

// refreshTime bounds the look at what an own call has changed.
const refreshTime = 10 * time.Second

// ContainerInspect implements the client's method.
func (c *Cache) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	if fromMemory(ctx) {
		if detail, ok := c.container(id); ok {
			return detail, nil
		}
	}
	detail, err := c.engine.ContainerInspect(ctx, id)
	c.learn(ctx, id, detail, err)
	return detail, err
}

// learn corrects what is remembered of a container by what the engine has just
// said, which may be ahead of its events: who is told that something is gone or
// has ended must not find it in a list afterwards.
func (c *Cache) learn(ctx context.Context, id string, now container.InspectResponse, err error) {
	had, known := c.container(id)
	if known && (errdefs.IsNotFound(err) || err == nil && now.ContainerJSONBase != nil && !reflect.DeepEqual(had.State, now.State)) {
		c.changed(ctx, had.ID)
	}
}

func (c *Cache) container(id string) (container.InspectResponse, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.containers[id]
	if c.phase != live || e == nil || c.stale[id] {
		return container.InspectResponse{}, false
	}
	return e.detail, true
}

// ContainerList implements the client's method. The cache knows the pods'
// containers only, so the filter has to ask for those.
func (c *Cache) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	if fromMemory(ctx) && answerable(o) {
		if list, ok := c.list(o); ok {
			return list, nil
		}
	}
	return c.engine.ContainerList(ctx, o)
}

// answerable reports whether the cache understands all of a list's options.
func answerable(o container.ListOptions) bool {
	pods := false
	for _, label := range o.Filters.Get("label") {
		key, _, _ := strings.Cut(label, "=")
		pods = pods || key == state.LabelType
	}
	for _, key := range o.Filters.Keys() {
		if key != "label" && key != "id" && key != "status" {
			return false
		}
	}
	return pods && !o.Size && !o.Latest && o.Limit == 0 && o.Since == "" && o.Before == ""
}

func (c *Cache) list(o container.ListOptions) ([]container.Summary, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase != live || len(c.stale) > 0 || !c.images.fresh {
		return nil, false
	}
	wanted := newFilter(o)
	found := make([]*entry, 0, len(c.containers))
	for _, e := range c.containers {
		if wanted.passes(&e.detail) {
			found = append(found, e)
		}
	}
	slices.SortFunc(found, func(a, b *entry) int { return strings.Compare(b.born, a.born) }) // the newest first, as the engine has it
	list := make([]container.Summary, len(found))
	for i, e := range found {
		list[i] = c.summary(e)
	}
	return list, true
}

// filter is the engine's filters: one value of each key, but all labels.
type filter struct {
	all              bool
	labels           []labelFilter
	states, prefixes []string
}

type labelFilter struct {
	key, value string
	exact      bool // the value counts
}

func newFilter(o container.ListOptions) filter {
	s := filter{all: o.All, states: o.Filters.Get("status"), prefixes: o.Filters.Get("id")}
	for _, label := range o.Filters.Get("label") {
		var f labelFilter
		f.key, f.value, f.exact = strings.Cut(label, "=")
		s.labels = append(s.labels, f)
	}
	return s
}

func (s filter) passes(d *container.InspectResponse) bool {
	if len(s.states) == 0 && !s.all && !d.State.Running {
		return false
	}
	for _, f := range s.labels {
		if got, ok := d.Config.Labels[f.key]; !ok || f.exact && got != f.value {
			return false
		}
	}
	return (len(s.states) == 0 || slices.Contains(s.states, d.State.Status)) &&
		(len(s.prefixes) == 0 || slices.ContainsFunc(s.prefixes, func(id string) bool { return strings.HasPrefix(d.ID, id) }))
}

// summary is the list entry of a container, as far as the shim looks at it.
func (c *Cache) summary(e *entry) container.Summary {
	d := &e.detail
	s := container.Summary{
		ID: d.ID, Created: e.second, Names: []string{d.Name}, Image: c.images.nameOf(d.Config.Image, d.Image), ImageID: d.Image,
		Labels: d.Config.Labels, State: d.State.Status,
	}
	s.HostConfig.NetworkMode = string(d.HostConfig.NetworkMode)
	if d.NetworkSettings != nil {
		s.NetworkSettings = &container.NetworkSettingsSummary{Networks: d.NetworkSettings.Networks}
	}
	return s
}

// invalidate notes that a container may have changed. It reports whether
// anything is kept at all.
func (c *Cache) invalidate(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == off {
		return false
	}
	c.invalidateLocked(id)
	return true
}

// invalidateLocked is called with the lock held.
func (c *Cache) invalidateLocked(id string) {
	e := c.containers[id]
	if e == nil {
		e = &entry{}
		c.containers[id] = e
	}
	e.generation, c.stale[id] = c.tick(), true
}

// changed reads back what an own call has changed. When that fails it
// stays stale, and every reader goes to the engine.
func (c *Cache) changed(ctx context.Context, id string) {
	if len(id) != fullID {
		c.invalidateAll()
		return
	}
	if !c.invalidate(id) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	if err := c.refresh(ctx, id); err != nil {
		c.notify()
	}
}

// invalidateAll is for a call that does not name its container by the full id.
func (c *Cache) invalidateAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id := range c.containers {
		c.invalidateLocked(id)
	}
	c.notify()
}

// refresh reads a container that is stale, and forgets it where it is gone or
// no pod's. Another reader may have been there first.
func (c *Cache) refresh(ctx context.Context, id string) error {
	c.mu.Lock()
	e := c.containers[id]
	if e == nil || !c.stale[id] {
		c.mu.Unlock()
		return nil
	}
	generation := e.generation
	c.mu.Unlock()

	detail, err := c.engine.ContainerInspect(ctx, id)
	if err != nil && !errdefs.IsNotFound(err) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e = c.containers[id]; e == nil || e.generation != generation {
		return nil // there was a reason to read it again; somebody will
	}
	delete(c.stale, id)
	if err != nil || !isPods(detail) {
		delete(c.containers, id)
		return nil
	}
	e.know(detail)
	return nil
}

func isPods(d container.InspectResponse) bool {
	return d.ContainerJSONBase != nil && d.Config != nil && d.State != nil && d.HostConfig != nil && d.Config.Labels[state.LabelType] != ""
}

// podContainers selects everything that the cache keeps.
func podContainers() container.ListOptions {
	return container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", state.LabelType))}
}
