package state

import (
	"context"
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

type Inspector interface {
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
}

type FoundContainer struct {
	Container
	Detail container.InspectResponse
}

type FoundSandbox struct {
	Sandbox
	Detail container.InspectResponse
}

// ErrNoPod is returned for an engine container outside pods. CRI treats it as missing.
var ErrNoPod = fmt.Errorf("it belongs to no pod: %w", errdefs.ErrNotFound)

func FindContainer(ctx context.Context, engine Inspector, id string) (found FoundContainer, err error) {
	if found.Detail, err = Inspect(ctx, engine, "container", id); err != nil {
		return found, err
	}
	var ok bool
	if found.Container, ok = DecodeContainer(found.Detail.Name, found.Detail.Config.Labels); !ok {
		if _, sandbox := DecodeSandbox(found.Detail.Name, found.Detail.Config.Labels); sandbox {
			return found, fmt.Errorf("container %s is not a pod's container: %w", id, errdefs.ErrNotFound)
		}
		return found, fmt.Errorf("container %s is not a pod's container: %w", id, ErrNoPod)
	}
	return found, nil
}

func FindSandbox(ctx context.Context, engine Inspector, id string) (found FoundSandbox, err error) {
	if found.Detail, err = Inspect(ctx, engine, "pod sandbox", id); err != nil {
		return found, err
	}
	var ok bool
	if found.Sandbox, ok = DecodeSandbox(found.Detail.Name, found.Detail.Config.Labels); !ok {
		return found, fmt.Errorf("container %s is not a pod sandbox: %w", id, errdefs.ErrNotFound)
	}
	return found, nil
}

func Inspect(ctx context.Context, engine Inspector, what, id string) (container.InspectResponse, error) {
	if id == "" {
		return container.InspectResponse{}, fmt.Errorf("the %s id is empty: %w", what, errdefs.ErrInvalidArgument)
	}
	c, err := engine.ContainerInspect(ctx, id)
	if errdefs.IsNotFound(err) {
		return c, fmt.Errorf("no such %s: %s: %w", what, id, errdefs.ErrNotFound)
	}
	if err != nil {
		return c, fmt.Errorf("%s %s: %w", what, id, err)
	}
	return c, nil
}

// Running reports whether a container has processes. Paused and restarting containers count as running.
func (c FoundContainer) Running() bool {
	return c.Detail.State.Running || c.Detail.State.Paused || c.Detail.State.Restarting
}

func (c FoundContainer) Lived() bool { return c.Detail.State.Status != container.StateCreated }

// ListedName returns a container's own name in a list. Names with a second slash are links from other containers.
func ListedName(c container.Summary) string {
	for _, n := range c.Names {
		if !strings.Contains(strings.TrimPrefix(n, "/"), "/") {
			return n
		}
	}
	return ""
}
