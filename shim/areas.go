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
	"github.com/crishim/crishim/shim/pause"
	"github.com/crishim/crishim/shim/sandbox"
	"github.com/crishim/crishim/shim/stats"
	"github.com/crishim/crishim/shim/stream"
)

// Each area of the shim answers some of the RPCs. All are embedded in one
// struct under a name of their own, whatever their type is called.
type (
	nodeArea      = node
	sandboxArea   = sandbox.Service
	containerArea = container.Service
	imageArea     = image.Service
	streamArea    = stream.Server
	statsArea     = stats.Service
	eventArea     = events.Service
	logArea       = logs.Service
)

// areas is the whole of both services. The areas' methods win over those of
// unimplemented, which is embedded one struct deeper, and podStatuses over the
// sandbox area.
type areas struct {
	*nodeArea
	*podStatuses
	pods
	*containerArea
	*imageArea
	*streamArea
	*statsArea
	*eventArea
	*logArea
	*listStreams
	fallback
	private     *private     // the service beside CRI
	cache       *cache.Cache // nil in a shim for one command
	temporaries temporaries
}

// podParts describe what an event is about.
type podParts struct {
	*sandboxArea
	*containerArea
}

type fallback struct{ unimplemented }

type pods struct{ *sandboxArea }

type unimplemented struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer
}

var (
	_ runtimeapi.RuntimeServiceServer = (*areas)(nil)
	_ runtimeapi.ImageServiceServer   = (*areas)(nil)
)

// newAreas builds every area around one engine client. A shim that stays has a
// cache in front of it; one for a single command would only pay for that.
func newAreas(o Options, client *docker.Client) (*areas, error) {
	var engine engine = client
	var cached *cache.Cache
	if o.Daemon {
		both := newCachedEngine(client, o.Log)
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
	a := &areas{
		nodeArea:      &node{engine: engine, networks: networks, pauseImage: pause.Image(o.PauseImage), driver: o.CgroupDriver, stays: o.Daemon},
		podStatuses:   &podStatuses{pods: sandboxes, containers: containers},
		pods:          pods{sandboxes},
		containerArea: containers,
		imageArea: image.New(image.Options{
			Engine: engine, Log: o.Log, PauseImage: pause.Image(o.PauseImage), PullProgressDeadline: o.PullProgressDeadline,
		}),
		streamArea: stream.New(stream.Options{
			Address:   o.StreamAddress,
			CertFile:  o.StreamCertFile,
			KeyFile:   o.StreamKeyFile,
			OnDemand:  !o.Daemon, // few commands have a session
			RecordDir: o.ExecRecords,

			IdleTimeout: o.StreamIdleTimeout,
			PodIPs:      podIPs(sandboxes),
			Log:         o.Log,
		}, engine),
		statsArea:   stats.New(stats.Options{Engine: engine, Log: o.Log}),
		logArea:     logFiles,
		temporaries: temporaries{dir: o.temporaries, engine: client.Endpoint().Host},
	}
	if cached != nil {
		a.cache, a.asOf = cached, cached.AsOf
	}
	a.listStreams = &listStreams{lists: a}
	a.eventArea = events.New(engine, podParts{sandboxes, containers}, o.Log)
	a.private = &private{engine: engine, streams: a.streamArea, images: a.imageArea}
	return a, nil
}

// podIPs gives the addresses of a pod as its status has them.
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

// start begins what areas do in the background.
func (a *areas) start(ctx context.Context) error {
	if err := a.streamArea.Start(ctx); err != nil {
		return err
	}
	a.logArea.Start()
	return nil
}

// interrupt ends the answers that go on by themselves, so that a graceful stop
// does not wait for them.
func (a *areas) interrupt() { a.eventArea.Close() }

// close ends what start began.
func (a *areas) close() error {
	a.logArea.Close()
	return errors.Join(a.streamArea.Close(), a.statsArea.Close())
}
