package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

type memoryContainer struct {
	id, name  string
	image     string
	number    int
	state     container.ContainerState
	exitCode  int
	born      time.Time
	started   time.Time
	finished  time.Time
	config    container.Config
	host      container.HostConfig
	addresses []string
}

func (c *memoryContainer) exit(code int) {
	c.state, c.exitCode, c.finished, c.addresses = exited, code, now(), nil
}

// ContainerCreate implements the client's method.
func (m *Memory) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, _ *network.NetworkingConfig, _ *ocispec.Platform, name string) (container.CreateResponse, error) {
	end, err := m.begin(ctx, "ContainerCreate")
	if err != nil {
		return container.CreateResponse{}, err
	}
	defer end()
	i, err := m.findImage(config.Image)
	if err != nil {
		return container.CreateResponse{}, err
	}
	if other, err := m.find(name); err == nil && other.name == name {
		return container.CreateResponse{}, fmt.Errorf(
			"Conflict. The container name \"/%s\" is already in use by container %q. You have to remove (or rename) that container to be able to reuse that name.: %w", name, other.id, errdefs.ErrConflict)
	}
	m.created++
	sum := sha256.Sum256([]byte(strconv.Itoa(m.created)))
	c := &memoryContainer{
		id: hex.EncodeToString(sum[:]), name: name, image: i.id, number: m.created,
		state: created, born: now(), config: *config, host: *host,
	}
	m.containers = append(m.containers, c)
	m.tell(c, events.ActionCreate)
	return container.CreateResponse{ID: c.id}, nil
}

// ContainerStart implements the client's method.
func (m *Memory) ContainerStart(ctx context.Context, id string, _ container.StartOptions) error {
	end, err := m.begin(ctx, "ContainerStart")
	if err != nil {
		return err
	}
	defer end()
	c, err := m.find(id)
	if err != nil {
		return err
	}
	if c.state == running {
		return nil
	}
	c.state, c.started, c.finished = running, now(), time.Time{}
	if mode := c.host.NetworkMode; mode.IsDefault() || mode.IsBridge() {
		c.addresses = []string{"172.17.0." + strconv.Itoa(c.number+1)}
	}
	m.tell(c, events.ActionStart)
	return nil
}

// ContainerStop implements the client's method. The process ends at once.
func (m *Memory) ContainerStop(ctx context.Context, id string, _ container.StopOptions) error {
	return m.end(ctx, "ContainerStop", id, false)
}

// ContainerKill implements the client's method.
func (m *Memory) ContainerKill(ctx context.Context, id, _ string) error {
	return m.end(ctx, "ContainerKill", id, true)
}

func (m *Memory) end(ctx context.Context, method, id string, mustRun bool) error {
	end, err := m.begin(ctx, method)
	if err != nil {
		return err
	}
	defer end()
	c, err := m.find(id)
	if err != nil {
		return err
	}
	switch {
	case c.state == running:
		c.exit(137)
		m.tell(c, events.ActionDie)
	case mustRun:
		return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrConflict)
	}
	return nil
}

// ContainerRemove implements the client's method.
func (m *Memory) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	end, err := m.begin(ctx, "ContainerRemove")
	if err != nil {
		return err
	}
	defer end()
	c, err := m.find(id)
	if err != nil {
		return err
	}
	if c.state == running && !o.Force {
		return fmt.Errorf("you cannot remove a running container %s: %w", c.id, errdefs.ErrConflict)
	}
	if c.state == running {
		c.exit(137)
		m.tell(c, events.ActionDie)
	}
	m.tell(c, events.ActionDestroy)
	m.containers = slices.DeleteFunc(m.containers, func(other *memoryContainer) bool { return other == c })
	return nil
}

// ContainerRename implements the client's method.
func (m *Memory) ContainerRename(ctx context.Context, id, name string) error {
	end, err := m.begin(ctx, "ContainerRename")
	if err != nil {
		return err
	}
	defer end()
	c, err := m.find(id)
	if err != nil {
		return err
	}
	c.name = name
	m.tell(c, events.ActionRename)
	return nil
}

// Connect gives a container an address.
func (m *Memory) Connect(id, address string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if c, err := m.find(id); err == nil {
		c.addresses = append(c.addresses, address)
		at := now()
		m.emit(events.Message{
			Type: events.NetworkEventType, Action: events.ActionConnect, Time: at.Unix(), TimeNano: at.UnixNano(),
			Actor: events.Actor{ID: "bridge", Attributes: map[string]string{"container": c.id}},
		})
	}
}
