package shim

import (
	"context"
	"io"
	"path/filepath"

	"github.com/docker/docker/api/types"
	dockercontainer "github.com/docker/docker/api/types/container"
	dockerevents "github.com/docker/docker/api/types/events"
	dockerimage "github.com/docker/docker/api/types/image"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/cache"
	"github.com/crishim/crishim/shim/container"
	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/events"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/image"
	"github.com/crishim/crishim/shim/logs"
	"github.com/crishim/crishim/shim/node"
	"github.com/crishim/crishim/shim/pause"
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
type cachedEngine struct {
	*cache.Cache
	uncached
}

var _ engine = cachedEngine{}

// uncached is the rest of the client: what the cache neither answers nor has to know of. It is an interface, because
// embedding the whole client would make methods ambiguous.
type uncached interface {
	ClientVersion() string
	DiskUsage(ctx context.Context, o types.DiskUsageOptions) (types.DiskUsage, error)
	Events(ctx context.Context, o dockerevents.ListOptions) (<-chan dockerevents.Message, <-chan error)
	ImageHistory(ctx context.Context, ref string, o ...docker.ImageHistoryOption) ([]dockerimage.HistoryResponseItem, error)
	ImageSave(ctx context.Context, ids []string, o ...docker.ImageSaveOption) (io.ReadCloser, error)

	ContainerAttach(ctx context.Context, id string, o dockercontainer.AttachOptions) (types.HijackedResponse, error)
	ContainerExecAttach(ctx context.Context, execID string, o dockercontainer.ExecAttachOptions) (types.HijackedResponse, error)
	ContainerExecCreate(ctx context.Context, id string, o dockercontainer.ExecOptions) (dockercontainer.ExecCreateResponse, error)
	ContainerExecInspect(ctx context.Context, execID string) (dockercontainer.ExecInspect, error)
	ContainerExecResize(ctx context.Context, execID string, o dockercontainer.ResizeOptions) error
	ContainerInspectWithRaw(ctx context.Context, id string, size bool) (dockercontainer.InspectResponse, []byte, error)
	ContainerLogs(ctx context.Context, id string, o dockercontainer.LogsOptions) (io.ReadCloser, error)
	ContainerResize(ctx context.Context, id string, o dockercontainer.ResizeOptions) error
	ContainerStatPath(ctx context.Context, id, path string) (dockercontainer.PathStat, error)
	ContainerStatsOneShot(ctx context.Context, id string) (dockercontainer.StatsResponseReader, error)
	ContainerDiff(ctx context.Context, id string) ([]dockercontainer.FilesystemChange, error)
	CopyFromContainer(ctx context.Context, id, path string) (io.ReadCloser, dockercontainer.PathStat, error)
	CopyToContainer(ctx context.Context, id, path string, content io.Reader, o dockercontainer.CopyToContainerOptions) error
}

// newService builds every service around one engine client. A daemon has a cache in front
// of it; a shim for a single command would only pay for that.
func newService(o Options, client *docker.Client) (*criService, *private.Service, error) {
	s := &criService{}
	var engine engine = client
	if o.Daemon {
		s.cache = cache.New(client, o.Log)
		engine = cachedEngine{s.cache, client}
	}
	networks, err := newNetworks(o, client.Endpoint())
	if err != nil {
		return nil, nil, err
	}
	plugins := networks.Plugins
	if o.observeNetwork != nil {
		plugins = plugins.Observed(o.observeNetwork)
	}
	oom := &host.OOMScore{Log: o.Log}
	var capabilities func() []string
	if socket := client.Endpoint().Socket(); socket != "" {
		oom.Known = func() bool { return host.EngineLacksResource(socket) }
		capabilities = func() []string { return host.EngineCapabilities(socket) }
	}

	pauseImage := pause.Image(o.PauseImage)
	s.logs = logs.New(logs.Options{Engine: engine, Log: o.Log, Write: o.WriteLogs})
	containers := container.Options{Engine: engine, OOM: oom, Capabilities: capabilities, Remember: o.Daemon, Log: o.Log}
	if o.temporaries != "" {
		containers.Owner = filepath.Base(filepath.Dir(o.temporaries))
		containers.NoteTemporary = temporaries{dir: o.temporaries, engine: client.Endpoint().Host}.note
	}
	if o.WriteLogs {
		containers.Logs = s.logs
	}
	s.containers = container.New(containers)
	s.sandboxes = sandbox.New(sandbox.Options{
		Engine: engine, Containers: s.containers, Networks: plugins, PauseImage: o.PauseImage, OOM: oom, Log: o.Log,
	})
	s.node = node.New(node.Options{
		Engine: engine, Networks: networks, PauseImage: pauseImage, CgroupDriver: o.CgroupDriver, Daemon: o.Daemon,
	})
	s.images = image.New(image.Options{
		Engine: engine, PauseImage: pauseImage, PullProgressDeadline: o.PullProgressDeadline,
	})
	s.streams = stream.New(stream.Options{
		Address: o.StreamAddress, CertFile: o.StreamCertFile, KeyFile: o.StreamKeyFile,
		OnDemand:  !o.Daemon, // few commands have a session
		RecordDir: o.ExecRecords, IdleTimeout: o.StreamIdleTimeout, PodIPs: s.podIPs, Log: o.Log,
	}, engine)
	s.stats = stats.New(stats.Options{Engine: engine, Log: o.Log})
	s.events = events.New(engine, statuses{s}, o.Log)
	return s, &private.Service{Engine: engine, Streams: s.streams, Images: s.images, Containers: s.containers}, nil
}

// podIPs returns the addresses of a pod as its status has them.
func (s *criService) podIPs(ctx context.Context, id string) ([]string, error) {
	resp, err := s.sandboxes.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil {
		return nil, err
	}
	network := resp.GetStatus().GetNetwork()
	ips := []string{network.GetIp()}
	for _, extra := range network.GetAdditionalIps() {
		ips = append(ips, extra.GetIp())
	}
	return ips, nil
}

// statuses returns what an event is about. It bypasses the cache: an event must not show a state older than its cause.
type statuses struct{ of *criService }

func (s statuses) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return s.of.sandboxes.PodSandboxStatus(ctx, r)
}

func (s statuses) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return s.of.containers.ContainerStatus(ctx, r)
}

func (s statuses) AwaitLog(ctx context.Context, id string) { s.of.containers.AwaitLog(ctx, id) }
