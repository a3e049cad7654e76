package shim

import (
	"context"
	"path"

	"github.com/crishim/crishim/shim/cache"
	"github.com/crishim/crishim/shim/container"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/events"
	"github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/logs"
	"github.com/crishim/crishim/shim/node"
	"github.com/crishim/crishim/shim/private"
	"github.com/crishim/crishim/shim/sandbox"
	"github.com/crishim/crishim/shim/stats"
	"github.com/crishim/crishim/shim/stream"
)

// engine is what all services together need of the Docker client.
type engine interface {
	node.Engine
	sandbox.Engine
	container.Engine
	image.Engine
	stream.Engine
	stats.Engine
	events.Engine
	logs.Engine
	private.Engine
}

// cachedEngine is the Docker client with a cache in front of what it answers.
// The cache's methods win over those of the client, which is embedded one struct
// deeper.
type cachedEngine struct {
	*cache.Cache
	uncached
}

type uncached struct{ *docker.Client }

var (
	_ engine       = cachedEngine{}
	_ cache.Engine = (*docker.Client)(nil)
)

// reading prepares the context of an RPC that only looks, so that it may be
// answered from the cache. All others see the engine itself; so do the events,
// which must not tell an older state than that of their cause.
func reading(ctx context.Context, method string) context.Context {
	switch path.Base(method) {
	case "Version", "Status", "RuntimeConfig",
		"ListPodSandbox", "PodSandboxStatus", "ListContainers", "ContainerStatus", "ListImages", "ImageStatus", "ImageFsInfo",
		"ContainerStats", "ListContainerStats", "PodSandboxStats", "ListPodSandboxStats", "ListMetricDescriptors", "ListPodSandboxMetrics",
		"StreamPodSandboxes", "StreamContainers", "StreamImages", "StreamContainerStats", "StreamPodSandboxStats", "StreamPodSandboxMetrics":
		return cache.Reading(ctx)
	}
	return ctx
}
