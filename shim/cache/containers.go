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
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/state"
)

// entry is one of the pods' containers, sandboxes included.
type entry struct {
	generation uint64 // changes with each reason to read it again
	detail     container.InspectResponse
	born       string // sorts by age, and among equals by id
	second     int64  // of its creation
}

// refreshTime bounds the reading of what a call has changed.
const refreshTime = 10 * time.Second

// ContainerInspect returns containers by full id from memory. A call to the engine may be
// ahead of its events: one that is gone or has ended must not be in a list after that.
func (c *Cache) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	if fromMemory(ctx) {
		if detail, ok := c.container(id); ok {
			return detail, nil
		}
	}
	now, err := c.engine.ContainerInspect(ctx, id)
	had, known := c.container(id)
	if known && (errdefs.IsNotFound(err) || err == nil && now.ContainerJSONBase != nil && !reflect.DeepEqual(had.State, now.State)) {
		c.changed(ctx, had.ID)
	}
	return now, err
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

// ContainerList answers from memory where the filter asks for pods' containers.
func (c *Cache) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	if fromMemory(ctx) && answerable(o) {
		if list, ok := c.list(o); ok {
			return list, nil
		}
	}
	return c.engine.ContainerList(ctx, o)
}

// answerable reports whether the cache supports all options of a list.
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
	wanted := filter{all: o.All, labels: o.Filters.Get("label"), states: o.Filters.Get("status"), prefixes: o.Filters.Get("id")}
	found := make([]*entry, 0, len(c.containers))
	for _, e := range c.containers {
		if wanted.matches(&e.detail) {
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

// filter is the engine's filters: one value of each key matches, but all labels.
type filter struct {
	all                      bool
	labels, states, prefixes []string
}

func (f filter) matches(d *container.InspectResponse) bool {
	if len(f.states) == 0 && !f.all && !d.State.Running {
		return false
	}
	for _, label := range f.labels {
		key, value, exact := strings.Cut(label, "=")
		if got, ok := d.Config.Labels[key]; !ok || exact && got != value {
			return false
		}
	}
	return (len(f.states) == 0 || slices.Contains(f.states, d.State.Status)) &&
		(len(f.prefixes) == 0 || slices.ContainsFunc(f.prefixes, func(id string) bool { return strings.HasPrefix(d.ID, id) }))
}

// summary returns the list entry of a container, with the fields that the shim reads.
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

// invalidate marks a container as stale. The lock is held.
func (c *Cache) invalidate(id string) {
	e := c.containers[id]
	if e == nil {
		e = &entry{}
		c.containers[id] = e
	}
	e.generation, c.stale[id] = c.tick(), true
}

// changed reads back a container that a call may have changed, however it ended. When that
// fails the container stays stale, and every reader goes to the engine. So do all where the
// id may not be a full one.
func (c *Cache) changed(ctx context.Context, id string) {
	c.mu.Lock()
	full := len(id) == 64
	switch {
	case c.phase == off:
		c.mu.Unlock()
		return
	case full:
		c.invalidate(id)
	default:
		for id := range c.containers {
			c.invalidate(id)
		}
		c.notify()
	}
	c.mu.Unlock()
	if !full {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), refreshTime)
	defer cancel()
	if err := c.refresh(ctx, id); err != nil {
		c.notify()
	}
}

// refresh reads a stale container, unless another reader has done so, and drops one that is
// gone or no pod's.
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
		return nil // it is stale again
	}
	delete(c.stale, id)
	if d := detail; err != nil || d.ContainerJSONBase == nil || d.Config == nil || d.State == nil || d.HostConfig == nil || d.Config.Labels[state.LabelType] == "" {
		delete(c.containers, id)
		return nil
	}
	// A list of a thousand would spend a third of its time on parsing these again.
	e.detail, e.born, e.second = detail, detail.Created+detail.ID, 0
	if t, err := time.Parse(time.RFC3339Nano, detail.Created); err == nil {
		e.second = t.Unix()
	}
	return nil
}

// podContainers selects everything that the cache keeps.
func podContainers() container.ListOptions {
	return container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", state.LabelType))}
}

func (c *Cache) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error) {
	created, err := c.engine.ContainerCreate(ctx, config, host, n, p, name)
	if created.ID != "" {
		c.changed(ctx, created.ID)
	}
	return created, err
}

func (c *Cache) ContainerStart(ctx context.Context, id string, o container.StartOptions) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerStart(ctx, id, o)
}

func (c *Cache) ContainerStop(ctx context.Context, id string, o container.StopOptions) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerStop(ctx, id, o)
}

func (c *Cache) ContainerKill(ctx context.Context, id, signal string) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerKill(ctx, id, signal)
}

func (c *Cache) ContainerPause(ctx context.Context, id string) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerPause(ctx, id)
}

func (c *Cache) ContainerUnpause(ctx context.Context, id string) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerUnpause(ctx, id)
}

func (c *Cache) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	defer c.changed(ctx, id)
	return c.engine.ContainerRemove(ctx, id, o)
}

func (c *Cache) ContainerUpdate(ctx context.Context, id string, u container.UpdateConfig) (container.UpdateResponse, error) {
	defer c.changed(ctx, id)
	return c.engine.ContainerUpdate(ctx, id, u)
}
