package cache

import (
	"context"

	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
)

// about is the engine's account of itself. Only its restart or its reload
// change what the shim looks at there.
type about struct {
	doubt   uint64
	fresh   bool
	version types.Version
	info    system.Info
}

// ServerVersion implements the client's method.
func (c *Cache) ServerVersion(ctx context.Context) (types.Version, error) {
	if mayRemember(ctx) {
		if a, ok := c.known(); ok {
			return a.version, nil
		}
	}
	return c.engine.ServerVersion(ctx)
}

// Info implements the client's method.
func (c *Cache) Info(ctx context.Context) (system.Info, error) {
	if mayRemember(ctx) {
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
	doubt, fresh := c.about.doubt, c.about.fresh
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
	if c.about.doubt == doubt {
		c.about = about{doubt: doubt, fresh: true, version: version, info: info}
	}
	return nil
}
