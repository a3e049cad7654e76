// Package cache answers what the shim reads most often from memory: the pods' containers,
// the images, and the engine's Info and version. It has the Docker client's own methods, and
// stands between the client and the services of a shim that stays.
//
// The engine's events invalidate what they are about; nothing else in them is used, so an
// event may come twice, late or out of order. An answer that was read while such an event
// came in is dropped. What a call through the cache changes is read back before the call
// returns.
//
// Only calls with a context of Reading are answered from memory, and only while the event
// stream is open and everything that they need is fresh; all others go to the engine. The
// answers are shared and must not be changed.
package cache

import (
	"cmp"
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/api/types/system"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/shim/docker"
)

// Engine is what the cache needs of the Docker client: the methods that it answers, and
// those that change the answers.
type Engine interface {
	Events(ctx context.Context, o events.ListOptions) (<-chan events.Message, <-chan error)
	Ping(ctx context.Context) (types.Ping, error)
	ServerVersion(ctx context.Context) (types.Version, error)
	Info(ctx context.Context) (system.Info, error)

	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, n *network.NetworkingConfig, p *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerStart(ctx context.Context, id string, o container.StartOptions) error
	ContainerStop(ctx context.Context, id string, o container.StopOptions) error
	ContainerKill(ctx context.Context, id, signal string) error
	ContainerPause(ctx context.Context, id string) error
	ContainerUnpause(ctx context.Context, id string) error
	ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error
	ContainerUpdate(ctx context.Context, id string, u container.UpdateConfig) (container.UpdateResponse, error)

	ImageList(ctx context.Context, o image.ListOptions) ([]image.Summary, error)
	ImageInspect(ctx context.Context, ref string, o ...docker.ImageInspectOption) (image.InspectResponse, error)
	ImageLoad(ctx context.Context, input io.Reader, o ...docker.ImageLoadOption) (image.LoadResponse, error)
	ImagePull(ctx context.Context, ref string, o image.PullOptions) (io.ReadCloser, error)
	ImageRemove(ctx context.Context, ref string, o image.RemoveOptions) ([]image.DeleteResponse, error)
}

// Cache is an Engine that caches. It is empty until Follow runs.
type Cache struct {
	engine Engine
	log    *slog.Logger
	audit  time.Duration // between two comparisons with the engine
	wake   chan struct{} // has a token while there may be something to read

	heartbeatPause, heartbeatTime time.Duration

	mu         sync.Mutex // guards everything below
	phase      phase
	clock      uint64 // counts generations
	asOf       int64  // every event up to here has been received; the engine's nanoseconds
	containers map[string]*entry
	stale      map[string]bool // ids of containers to read
	images     images
	about      about
}

type phase int

const (
	off     phase = iota // no event stream
	syncing              // events are received, but not everything has been read once
	live
)

// auditInterval is how often the cache is compared with the engine's lists, for events that
// the engine drops when a client is slow, and the few changes without an event.
const auditInterval = time.Minute

// New builds a cache of an engine.
func New(engine Engine, log *slog.Logger) *Cache {
	c := &Cache{
		engine: engine, log: cmp.Or(log, slog.New(slog.DiscardHandler)), audit: auditInterval, wake: make(chan struct{}, 1),
		heartbeatPause: heartbeatPause, heartbeatTime: heartbeatTime,
	}
	c.reset(off)
	return c
}

type reading struct{}

// Reading lets calls with this context be answered from memory. It is for requests that only
// read.
func Reading(ctx context.Context) context.Context { return context.WithValue(ctx, reading{}, true) }

func fromMemory(ctx context.Context) bool { return ctx.Value(reading{}) != nil }

// AsOf returns the time, by the engine's clock, up to which the cache is complete; false
// where it is not in use.
func (c *Cache) AsOf() (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asOf, c.phase == live
}

// reset empties the cache. The lock is held, or the cache is new.
func (c *Cache) reset(p phase) {
	c.phase, c.asOf = p, 0
	c.containers, c.stale = map[string]*entry{}, map[string]bool{}
	c.images = images{generation: c.tick(), details: map[string]answer{}}
	c.about = about{generation: c.tick()}
}

// tick returns a generation that was never returned before.
func (c *Cache) tick() uint64 {
	c.clock++
	return c.clock
}

// notify wakes the reader.
func (c *Cache) notify() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// about is the engine's Info and version. Only its restart or its reload change what the
// shim reads there.
type about struct {
	generation uint64
	fresh      bool
	version    types.Version
	info       system.Info
}

func (c *Cache) ServerVersion(ctx context.Context) (types.Version, error) {
	if fromMemory(ctx) {
		if a, ok := c.known(); ok {
			return a.version, nil
		}
	}
	return c.engine.ServerVersion(ctx)
}

func (c *Cache) Info(ctx context.Context) (system.Info, error) {
	if fromMemory(ctx) {
		if a, ok := c.known(); ok {
			return a.info, nil
		}
	}
	return c.engine.Info(ctx)
}

func (c *Cache) known() (about, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.about, c.phase == live && c.about.fresh
}

func (c *Cache) refreshAbout(ctx context.Context) error {
	c.mu.Lock()
	generation, fresh := c.about.generation, c.about.fresh
	c.mu.Unlock()
	if fresh {
		return nil
	}
	version, err := c.engine.ServerVersion(ctx)
	if err != nil {
		return err
	}
	info, err := c.engine.Info(ctx)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.about.generation == generation {
		c.about = about{generation: generation, fresh: true, version: version, info: info}
	}
	return nil
}
