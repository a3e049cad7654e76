package enginetest

import (
	"context"
	"maps"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/network"
)

// firstPID is given to the first container; it is no process of the host.
const firstPID = 1 << 30

// ContainerInspect implements the client's method.
func (m *Memory) ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error) {
	end, err := m.begin(ctx, "ContainerInspect")
	if err != nil {
		return container.InspectResponse{}, err
	}
	defer end()
	c, err := m.find(id)
	if err != nil {
		return container.InspectResponse{}, err
	}
	return c.inspect(), nil
}

// ContainerInspectWithRaw implements the client's method without the raw form. Nothing
// is ever written in a container.
func (m *Memory) ContainerInspectWithRaw(ctx context.Context, id string, size bool) (container.InspectResponse, []byte, error) {
	c, err := m.ContainerInspect(ctx, id)
	if err == nil && size {
		c.SizeRw = new(int64)
	}
	return c, nil, err
}

func (c *memoryContainer) inspect() container.InspectResponse {
	config, host := c.config, c.host
	config.Labels = maps.Clone(config.Labels)
	state := &container.State{
		Status: c.state, Running: c.state == running, ExitCode: c.exitCode,
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
	}
}

func (c *memoryContainer) networks() map[string]*network.EndpointSettings {
	networks := map[string]*network.EndpointSettings{}
	for _, a := range c.addresses {
		networks["bridge"] = &network.EndpointSettings{IPAddress: a}
	}
	return networks
}

// ContainerList implements the client's method with the filters label, id, name
// and status.
func (m *Memory) ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error) {
	end, err := m.begin(ctx, "ContainerList")
	if err != nil {
		return nil, err
	}
	defer end()
	var list []container.Summary
	for _, c := range m.containers {
		if c.passes(o) {
			s := c.summary()
			if i, err := m.findImage(s.Image); err != nil || i.id != c.image {
				s.Image = c.image // the name means another image by now
			}
			list = append(list, s)
		}
	}
	return list, nil
}

func (c *memoryContainer) passes(o container.ListOptions) bool {
	if !o.All && !o.Filters.Contains("status") && c.state != running {
		return false
	}
	for _, label := range o.Filters.Get("label") {
		key, value, exact := strings.Cut(label, "=")
		if got, ok := c.config.Labels[key]; !ok || exact && got != value {
			return false
		}
	}
	return anyOf(o.Filters.Get("id"), func(id string) bool { return strings.HasPrefix(c.id, id) }) &&
		anyOf(o.Filters.Get("name"), func(name string) bool { return strings.Contains(c.name, strings.TrimPrefix(name, "/")) }) &&
		anyOf(o.Filters.Get("status"), func(status string) bool { return c.state == status })
}

func anyOf(values []string, fits func(string) bool) bool {
	for _, v := range values {
		if fits(v) {
			return true
		}
	}
	return len(values) == 0
}

func (c *memoryContainer) summary() container.Summary {
	s := container.Summary{
		ID: c.id, Names: []string{"/" + c.name}, Image: c.config.Image, ImageID: c.image,
		Created: c.born.Unix(), Labels: maps.Clone(c.config.Labels), State: c.state,
		NetworkSettings: &container.NetworkSettingsSummary{Networks: c.networks()},
	}
	s.HostConfig.NetworkMode = string(c.host.NetworkMode)
	return s
}
