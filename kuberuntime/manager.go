package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// Options say what a Manager works on.
type Options struct {
	// Runtime and Image are connections to the two services, often the same one.
	Runtime, Image grpc.ClientConnInterface

	Dirs pod.Dirs
	Host criconfig.Host
	// Auth finds the host's own credentials for an image; nil means that there are none.
	Auth func(ctx context.Context, image string) (*runtimeapi.AuthConfig, error)
	// Pull pulls an image in a way of the caller's, with progress say; nil means PullImage.
	Pull func(ctx context.Context, image string, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	// Events receives what happens, one call at a time for a pod.
	Events func(Event)
	// Endpoint names the runtime, so that pods of several runtimes on one host are told apart.
	Endpoint string
	// SerialPulls pulls one image at a time; PullQPS and PullBurst limit how often a pull
	// may start, 0 for no limit. One beyond the limit fails, as a kubelet's does that comes
	// back to it later, or waits for its turn with PatientPulls.
	SerialPulls  bool
	PullQPS      float64
	PullBurst    int
	PatientPulls bool
	Registerer   prometheus.Registerer
	Now          func() time.Time
}

// Manager is the runtime manager. It is safe for concurrent use, as long as no two calls
// change the same pod.
type Manager struct {
	o         Options
	runtime   runtimeapi.RuntimeServiceClient
	image     runtimeapi.ImageServiceClient
	generator *criconfig.Generator
	volumes   *volume.Maker
	puller    *puller
	crashes   *backoff
	prober    *probe.Manager
	changed   chan struct{} // has a token after a probe's verdict changed
	version   versionCache
	name      string
}

// apiVersion is the CRI's one and only kube API version.
const apiVersion = "0.1.0"

// New checks that the runtime speaks our version of the CRI.
func New(ctx context.Context, o Options) (*Manager, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	counts := newCounts(o.Registerer, o.Now)
	m := &Manager{
		o:         o,
		runtime:   runtimeapi.NewRuntimeServiceClient(instrumented{o.Runtime, counts}),
		image:     runtimeapi.NewImageServiceClient(instrumented{o.Image, counts}),
		generator: &criconfig.Generator{Host: o.Host, Dirs: o.Dirs},
		volumes:   &volume.Maker{Dirs: o.Dirs, Host: o.Host, MountTmpfs: volume.MountTmpfs, BindMount: volume.BindMount},
		crashes:   newBackoff(),
		changed:   make(chan struct{}, 1),
	}
	m.puller = newPuller(o, m.image)
	v, err := m.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: apiVersion})
	if err != nil {
		return nil, err
	}
	if v.GetVersion() != apiVersion {
		return nil, fmt.Errorf("the runtime has kube API version %q, want %q", v.GetVersion(), apiVersion)
	}
	m.prober = probe.NewManager(m.probeExec, m.probeChanged)
	m.name = v.GetRuntimeName()
	m.version.set(v.GetRuntimeApiVersion(), o.Now())
	return m, nil
}

// Close ends the probes.
func (m *Manager) Close() { m.prober.Close() }

// Type is the runtime's name.
func (m *Manager) Type() string { return m.name }

// Version is the runtime's own version.
func (m *Manager) Version(ctx context.Context) (string, error) {
	v, err := m.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: apiVersion})
	return v.GetRuntimeVersion(), err
}

// APIVersion is the runtime's API version, asked for once in 60 s.
func (m *Manager) APIVersion(ctx context.Context) (string, error) {
	if v, ok := m.version.get(m.o.Now()); ok {
		return v, nil
	}
	v, err := m.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: apiVersion})
	if err != nil {
		return "", err
	}
	m.version.set(v.GetRuntimeApiVersion(), m.o.Now())
	return v.GetRuntimeApiVersion(), nil
}

// Status is the runtime's status; an answer without the two required conditions is an error.
func (m *Manager) Status(ctx context.Context) (*runtimeapi.RuntimeStatus, error) {
	resp, err := m.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, err
	}
	if len(resp.GetStatus().GetConditions()) < 2 {
		return nil, errors.New("the runtime's status lacks conditions")
	}
	return resp.GetStatus(), nil
}

// UpdatePodCIDR tells the runtime which addresses pods get.
func (m *Manager) UpdatePodCIDR(ctx context.Context, cidr string) error {
	req := &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}}}
	_, err := m.runtime.UpdateRuntimeConfig(ctx, req)
	return err
}

// versionCache keeps the API version for a minute.
type versionCache struct {
	mu    sync.Mutex
	value string
	at    time.Time
}

const versionTTL = 60 * time.Second

func (c *versionCache) get(now time.Time) (string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value, c.value != "" && now.Sub(c.at).Abs() < versionTTL
}

func (c *versionCache) set(value string, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.value, c.at = value, now
}
