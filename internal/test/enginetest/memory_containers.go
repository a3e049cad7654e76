package enginetest

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// firstPID is the pid of the first container. No process of the host has it.
const firstPID = 1 << 30

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
	files     map[string]string // user files that the container has changed
}

func (m *Memory) find(ref string) (*memoryContainer, error) {
	var found *memoryContainer
	for _, c := range m.containers {
		switch {
		case c.id == ref || c.name == ref || "/"+c.name == ref:
			return c, nil
		case ref != "" && strings.HasPrefix(c.id, ref):
			if found != nil {
				return nil, fmt.Errorf("multiple IDs found with provided prefix: %s: %w", ref, errdefs.ErrInvalidArgument)
			}
			found = c
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no such container: %s: %w", ref, errdefs.ErrNotFound)
	}
	return found, nil
}

// callOn is call for a container's method.
func callOn[R any](ctx context.Context, m *Memory, method, id string, work func(*memoryContainer) (R, error)) (R, error) {
	return call(ctx, m, method, func() (answer R, err error) {
		c, err := m.find(id)
		if err != nil {
			return answer, err
		}
		return work(c)
	})
}

// do is callOn for a method without a result.
func (m *Memory) do(ctx context.Context, method, id string, work func(*memoryContainer) error) error {
	_, err := callOn(ctx, m, method, id, func(c *memoryContainer) (any, error) { return nil, work(c) })
	return err
}

// exit ends a container's process, if it runs.
func (m *Memory) exit(c *memoryContainer, code int) {
	if c.state == container.StateRunning {
		c.state, c.exitCode, c.finished, c.addresses = container.StateExited, code, time.Now(), nil
		m.containerEvent(c, events.ActionDie)
	}
}

// Exit makes a container's process exit on its own.
func (m *Memory) Exit(id string, code int) {
	m.locked(func() {
		if c, err := m.find(id); err == nil {
			m.exit(c, code)
		}
	})
}

// WriteFile changes one of a container's user files.
func (m *Memory) WriteFile(id, name, content string) {
	m.locked(func() {
		if c, err := m.find(id); err == nil {
			c.files = map[string]string{name: content}
		}
	})
}

func (m *Memory) Containers() (names []string) {
	m.locked(func() {
		for _, c := range m.containers {
			names = append(names, c.name)
		}
	})
	return names
}

func (m *Memory) Connect(id, address string) {
	m.locked(func() {
		if c, err := m.find(id); err == nil {
			c.addresses = append(c.addresses, address)
			m.event(events.NetworkEventType, events.ActionConnect, "bridge", map[string]string{"container": c.id})
		}
	})
}

func (m *Memory) ContainerCreate(ctx context.Context, config *container.Config, host *container.HostConfig, _ *network.NetworkingConfig, _ *ocispec.Platform, name string) (container.CreateResponse, error) {
	return call(ctx, m, "ContainerCreate", func() (container.CreateResponse, error) {
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
			state: container.StateCreated, born: time.Now(), config: *config, host: *host,
		}
		c.config.Labels = maps.Clone(i.labels)
		if c.config.Labels == nil {
			c.config.Labels = map[string]string{}
		}
		maps.Copy(c.config.Labels, config.Labels)
		m.containers = append(m.containers, c)
		m.containerEvent(c, events.ActionCreate)
		return container.CreateResponse{ID: c.id}, nil
	})
}

func (m *Memory) ContainerStart(ctx context.Context, id string, _ container.StartOptions) error {
	return m.do(ctx, "ContainerStart", id, func(c *memoryContainer) error {
		if c.state == container.StateRunning {
			return nil
		}
		c.state, c.started, c.finished = container.StateRunning, time.Now(), time.Time{}
		if mode := c.host.NetworkMode; mode.IsDefault() || mode.IsBridge() {
			c.addresses = []string{"172.17.0." + strconv.Itoa(c.number+1)}
		}
		m.containerEvent(c, events.ActionStart)
		return nil
	})
}

// ContainerStop ends the process at once.
func (m *Memory) ContainerStop(ctx context.Context, id string, _ container.StopOptions) error {
	return m.do(ctx, "ContainerStop", id, func(c *memoryContainer) error {
		m.exit(c, 137)
		return nil
	})
}

func (m *Memory) ContainerPause(ctx context.Context, id string) error {
	return m.freeze(ctx, "ContainerPause", id, container.StateRunning, container.StatePaused)
}

func (m *Memory) ContainerUnpause(ctx context.Context, id string) error {
	return m.freeze(ctx, "ContainerUnpause", id, container.StatePaused, container.StateRunning)
}

func (m *Memory) freeze(ctx context.Context, method, id string, from, to container.ContainerState) error {
	return m.do(ctx, method, id, func(c *memoryContainer) error {
		if c.state != from {
			return fmt.Errorf("container %s is %s: %w", id, c.state, errdefs.ErrConflict)
		}
		c.state = to
		return nil
	})
}

func (m *Memory) ContainerKill(ctx context.Context, id, _ string) error {
	return m.do(ctx, "ContainerKill", id, func(c *memoryContainer) error {
		if c.state != container.StateRunning {
			return fmt.Errorf("container %s is not running: %w", id, errdefs.ErrConflict)
		}
		m.exit(c, 137)
		return nil
	})
}

func (m *Memory) ContainerRemove(ctx context.Context, id string, o container.RemoveOptions) error {
	return m.do(ctx, "ContainerRemove", id, func(c *memoryContainer) error {
		if c.state == container.StateRunning && !o.Force {
			return fmt.Errorf("you cannot remove a running container %s: %w", c.id, errdefs.ErrConflict)
		}
		m.exit(c, 137)
		m.containerEvent(c, events.ActionDestroy)
		m.containers = slices.DeleteFunc(m.containers, func(other *memoryContainer) bool { return other == c })
		return nil
	})
}

// ContainerUpdate supports memory and CPUs.
func (m *Memory) ContainerUpdate(ctx context.Context, id string, u container.UpdateConfig) (container.UpdateResponse, error) {
	return callOn(ctx, m, "ContainerUpdate", id, func(c *memoryContainer) (container.UpdateResponse, error) {
		c.host.Memory = cmp.Or(u.Memory, c.host.Memory)
		c.host.MemorySwap = cmp.Or(u.MemorySwap, c.host.MemorySwap)
		c.host.CPUShares = cmp.Or(u.CPUShares, c.host.CPUShares)
		c.host.CPUQuota = cmp.Or(u.CPUQuota, c.host.CPUQuota)
		m.containerEvent(c, events.ActionUpdate)
		return container.UpdateResponse{}, nil
	})
}

func (m *Memory) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	return callOn(ctx, m, "ContainerInspect", id, func(c *memoryContainer) (container.InspectResponse, error) {
		stamp := func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }
		config, host := c.config, c.host
		config.Labels = maps.Clone(config.Labels)
		state := &container.State{
			Status: c.state, Running: c.runs(), Paused: c.state == container.StatePaused, ExitCode: c.exitCode,
			StartedAt: stamp(c.started), FinishedAt: stamp(c.finished),
		}
		if state.Running {
			state.Pid = firstPID + c.number
		}
		return container.InspectResponse{
			ContainerJSONBase: &container.ContainerJSONBase{
				ID: c.id, Name: "/" + c.name, Image: c.image, Created: stamp(c.born), State: state, HostConfig: &host,
			},
			Config:          &config,
			NetworkSettings: &container.NetworkSettings{Networks: c.networks()},
		}, nil
	})
}

// ContainerInspectWithRaw returns no raw form. The size is 0.
func (m *Memory) ContainerInspectWithRaw(ctx context.Context, id string, size bool) (container.InspectResponse, []byte, error) {
	c, err := m.ContainerInspect(ctx, id)
	if err == nil && size {
		c.SizeRw = new(int64)
	}
	return c, nil, err
}

func (c *memoryContainer) networks() map[string]*network.EndpointSettings {
	networks := map[string]*network.EndpointSettings{}
	for _, a := range c.addresses {
		networks["bridge"] = &network.EndpointSettings{IPAddress: a}
	}
	return networks
}

// ContainerList supports the filters label, id, name and status.
func (m *Memory) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	return call(ctx, m, "ContainerList", func() (list []container.Summary, _ error) {
		for _, c := range m.containers {
			if !c.passes(o) {
				continue
			}
			s := container.Summary{
				ID: c.id, Names: []string{"/" + c.name}, Image: c.config.Image, ImageID: c.image,
				Created: c.born.Unix(), Labels: maps.Clone(c.config.Labels), State: c.state,
				NetworkSettings: &container.NetworkSettingsSummary{Networks: c.networks()},
			}
			s.HostConfig.NetworkMode = string(c.host.NetworkMode)
			if i, err := m.findImage(s.Image); err != nil || i.id != c.image {
				s.Image = c.image // the name now belongs to another image
			}
			list = append(list, s)
		}
		return list, nil
	})
}

// runs reports whether a container has processes. A paused one has.
func (c *memoryContainer) runs() bool {
	return c.state == container.StateRunning || c.state == container.StatePaused
}

func (c *memoryContainer) passes(o container.ListOptions) bool {
	if !o.All && !o.Filters.Contains("status") && !c.runs() {
		return false
	}
	for _, label := range o.Filters.Get("label") {
		key, value, exact := strings.Cut(label, "=")
		if got, ok := c.config.Labels[key]; !ok || exact && got != value {
			return false
		}
	}
	anyOf := func(key string, fits func(string) bool) bool {
		return !o.Filters.Contains(key) || slices.ContainsFunc(o.Filters.Get(key), fits)
	}
	return anyOf("id", func(id string) bool { return strings.HasPrefix(c.id, id) }) &&
		anyOf("name", func(name string) bool { return strings.Contains(c.name, strings.TrimPrefix(name, "/")) }) &&
		anyOf("status", func(status string) bool { return c.state == status })
}

var userFiles = map[string]string{
	"/etc/passwd": "root:x:0:0::/:/bin/sh\nalice:x:1000:1000::/:/bin/sh\n",
	"/etc/group":  "root:x:0:\nalice:x:1000:\nextra:x:1234:alice\n",
}

func (m *Memory) ContainerDiff(ctx context.Context, id string) ([]container.FilesystemChange, error) {
	return callOn(ctx, m, "ContainerDiff", id, func(*memoryContainer) ([]container.FilesystemChange, error) { return nil, nil })
}

// CopyFromContainer supports the user files.
func (m *Memory) CopyFromContainer(ctx context.Context, id, name string) (io.ReadCloser, container.PathStat, error) {
	stat := container.PathStat{Name: path.Base(name)}
	archive, err := callOn(ctx, m, "CopyFromContainer", id, func(c *memoryContainer) (io.ReadCloser, error) {
		content, ok := c.files[name]
		if !ok {
			content, ok = userFiles[name]
		}
		stat.Size = int64(len(content))
		if !ok {
			return nil, fmt.Errorf("no such file %s: %w", name, errdefs.ErrNotFound)
		}
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		if err := w.WriteHeader(&tar.Header{Name: stat.Name, Mode: 0o644, Size: stat.Size}); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(w, content); err != nil {
			return nil, err
		}
		return io.NopCloser(&b), w.Close()
	})
	return archive, stat, err
}

// ContainerStatPath supports the user files and their directory.
func (m *Memory) ContainerStatPath(ctx context.Context, id, name string) (container.PathStat, error) {
	return callOn(ctx, m, "ContainerStatPath", id, func(*memoryContainer) (container.PathStat, error) {
		if _, ok := userFiles[name]; !ok && name != "/etc" {
			return container.PathStat{}, fmt.Errorf("no such file %s: %w", name, errdefs.ErrNotFound)
		}
		return container.PathStat{Name: path.Base(name)}, nil
	})
}
