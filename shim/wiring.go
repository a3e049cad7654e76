package shim

import (
	"context"
	"errors"
	"log/slog"
	"strings"

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

// criService answers both services of the CRI. Each RPC is answered by one of the
// services below; who that is stands in calls.go.
type criService struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	node        *node.Service
	sandboxes   *sandbox.Service
	podStatuses *podStatuses
	containers  *container.Service
	images      *image.Service
	streams     *stream.Server
	stats       *stats.Service
	events      *events.Service
	logs        *logs.Service
	lists       lists        // what the streamed lists are made of: the service itself
	private     *private.Service     // the service that is not of the CRI
	cache       *cache.Cache // nil in a shim for one command
	temporaries temporaries
}

// newService builds every service around one engine client. A shim that stays has a
// cache in front of it; one for a single command would only pay for that.
func newService(o Options, client *docker.Client) (*criService, error) {
	var engine engine = client
	var cached *cache.Cache
	if o.Daemon {
		both := cachedEngine{cache.New(client, o.Log), uncached{client}}
		engine, cached = both, both.Cache
	}
	oom := oomScore(o.Log, client.Endpoint())
	networks, err := newNetworks(o, client.Endpoint())
	if err != nil {
		return nil, err
	}
	plugins := networks.Plugins
	if o.observeNetwork != nil {
		plugins = plugins.Observed(o.observeNetwork)
	}
	logFiles := logs.New(logs.Options{Engine: engine, Log: o.Log, Write: o.WriteLogs})
	containerOptions := container.Options{Engine: engine, OOM: oom, Remember: o.Daemon, Log: o.Log}
	if path, ok := strings.CutPrefix(client.Endpoint().Host, "unix://"); ok {
		containerOptions.Capabilities = func() []string { return host.EngineCapabilities(path) }
	}
	if o.WriteLogs {
		containerOptions.Logs = logFiles
	}
	containers := container.New(containerOptions)
	sandboxes := sandbox.New(sandbox.Options{
		Engine:     engine,
		Containers: containers,
		Networks:   plugins,
		PauseImage: o.PauseImage,
		OOM:        oom,
		Log:        o.Log,
	})
	s := &criService{
		node:        node.New(node.Options{Engine: engine, Networks: networks, PauseImage: pause.Image(o.PauseImage), CgroupDriver: o.CgroupDriver, Daemon: o.Daemon}),
		podStatuses: &podStatuses{pods: sandboxes, containers: containers},
		sandboxes:   sandboxes,
		containers:  containers,
		images: image.New(image.Options{
			Engine: engine, PauseImage: pause.Image(o.PauseImage), PullProgressDeadline: o.PullProgressDeadline,
		}),
		streams: stream.New(stream.Options{
			Address:   o.StreamAddress,
			CertFile:  o.StreamCertFile,
			KeyFile:   o.StreamKeyFile,
			OnDemand:  !o.Daemon, // few commands have a session
			RecordDir: o.ExecRecords,

			IdleTimeout: o.StreamIdleTimeout,
			PodIPs:      podIPs(sandboxes),
			Log:         o.Log,
		}, engine),
		stats:       stats.New(stats.Options{Engine: engine, Log: o.Log}),
		logs:        logFiles,
		temporaries: temporaries{dir: o.temporaries, engine: client.Endpoint().Host},
	}
	if cached != nil {
		s.cache, s.podStatuses.asOf = cached, cached.AsOf
	}
	s.lists = s
	s.events = events.New(engine, eventParts{sandboxes, containers}, o.Log)
	s.private = &private.Service{Engine: engine, Streams: s.streams, Images: s.images}
	return s, nil
}

// eventParts describe what an event is about.
type eventParts struct {
	sandboxes  *sandbox.Service
	containers *container.Service
}

func (p eventParts) PodSandboxStatus(ctx context.Context, r *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	return p.sandboxes.PodSandboxStatus(ctx, r)
}

func (p eventParts) ContainerStatus(ctx context.Context, r *runtimeapi.ContainerStatusRequest) (*runtimeapi.ContainerStatusResponse, error) {
	return p.containers.ContainerStatus(ctx, r)
}

func (p eventParts) AwaitLog(ctx context.Context, id string) { p.containers.AwaitLog(ctx, id) }

// podIPs returns the addresses of a pod as its status has them.
func podIPs(sandboxes *sandbox.Service) func(context.Context, string) ([]string, error) {
	return func(ctx context.Context, id string) ([]string, error) {
		answer, err := sandboxes.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
		if err != nil {
			return nil, err
		}
		network := answer.GetStatus().GetNetwork()
		ips := []string{network.GetIp()}
		for _, more := range network.GetAdditionalIps() {
			ips = append(ips, more.GetIp())
		}
		return ips, nil
	}
}

// oomScore looks at a local engine's rights before a container fails for them.
func oomScore(log *slog.Logger, engine docker.Endpoint) *host.OOMScore {
	o := &host.OOMScore{Log: log}
	if path, ok := strings.CutPrefix(engine.Host, "unix://"); ok {
		o.Known = func() bool { return host.EngineLacksResource(path) }
	}
	return o
}

// start begins what the services do in the background.
func (s *criService) start(ctx context.Context) error {
	if err := s.streams.Start(ctx); err != nil {
		return err
	}
	s.logs.Start()
	return nil
}

// interrupt ends the answers that go on by themselves, so that a graceful stop
// does not wait for them.
func (s *criService) interrupt() { s.events.Close() }

// close ends what start began.
func (s *criService) close() error {
	s.logs.Close()
	return errors.Join(s.streams.Close(), s.stats.Close())
}
