package shim

import (
	"context"
	"os"
	"path/filepath"

	"github.com/docker/docker/api/types"
	dockercontainer "github.com/docker/docker/api/types/container"
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

type listingEngine struct {
	*docker.Client
	lists *cache.Cache
}

func (e listingEngine) ContainerList(ctx context.Context, o dockercontainer.ListOptions) ([]dockercontainer.Summary, error) {
	return e.lists.ContainerList(ctx, o)
}

func (e listingEngine) ServerVersion(ctx context.Context) (types.Version, error) {
	return e.lists.ServerVersion(ctx)
}

func newService(o Options, client *docker.Client) (*criService, *private.Service, error) {
	s := &criService{}
	var engine, listing engine = client, client
	if o.Daemon {
		s.lists = cache.New(client)
		listing = listingEngine{client, s.lists}
	}
	networks, err := newNetworks(o, client.Endpoint())
	if err != nil {
		return nil, nil, err
	}
	oom := &host.OOMScore{Log: o.Log}
	var capabilities func() []string
	if socket := client.Endpoint().Socket(); socket != "" {
		oom.Known = func() bool { return host.EngineLacksResource(socket) }
		capabilities = func() []string { return host.EngineCapabilities(socket) }
	}

	pauseImage := pause.Image(o.PauseImage)
	s.logService = logs.New(logs.Options{Engine: engine, Log: o.Log, Write: o.WriteLogs})
	containers := container.Options{Engine: listing, OOM: oom, Capabilities: capabilities, Log: o.Log}
	if o.temporaries != "" {
		containers.Owner = filepath.Base(filepath.Dir(o.temporaries))
		containers.NoteTemporary = func() error { return os.WriteFile(o.temporaries, []byte(client.Endpoint().Host), 0o600) }
	}
	if o.WriteLogs {
		containers.Logs = s.logService
	}
	s.containerService = container.New(containers)
	s.sandboxService = sandbox.New(sandbox.Options{
		Engine: listing, Containers: s.containerService, Networks: networks.Plugins, PauseImage: o.PauseImage, OOM: oom, Log: o.Log,
	})
	s.nodeService = node.New(node.Options{
		Engine: listing, Networks: networks, PauseImage: pauseImage, CgroupDriver: o.CgroupDriver, Daemon: o.Daemon,
	})
	s.imageService = image.New(image.Options{
		Engine: engine, PauseImage: pauseImage, PullProgressDeadline: o.PullProgressDeadline,
	})
	s.streamService = stream.New(stream.Options{
		Address: o.StreamAddress, CertFile: o.StreamCertFile, KeyFile: o.StreamKeyFile,
		OnDemand:  !o.Daemon, // the streaming server starts with the first session, which few commands have
		RecordDir: o.ExecRecords, IdleTimeout: o.StreamIdleTimeout, PodIPs: s.podIPs, Log: o.Log,
	}, engine)
	s.statsService = stats.New(listing, o.Log)
	s.eventService = events.New(engine, statuses{s}, o.Log)
	return s, &private.Service{Engine: engine, Streams: s.streamService, Images: s.imageService, Containers: s.containerService}, nil
}

func (s *criService) podIPs(ctx context.Context, id string) ([]string, error) {
	resp, err := s.sandboxService.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
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

// statuses reads the statuses that are sent with events. It then invalidates cached lists, so that a client never gets a
// list that is older than an event it has received.
type statuses struct{ of *criService }

func (s statuses) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	defer s.of.invalidateLists()
	return s.of.sandboxService.PodSandboxStatus(ctx, r)
}

func (s statuses) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	defer s.of.invalidateLists()
	return s.of.containerService.ContainerStatus(ctx, r)
}

func (s statuses) AwaitLog(ctx context.Context, id string) { s.of.containerService.AwaitLog(ctx, id) }
