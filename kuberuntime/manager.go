package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
	"github.com/crishim/crishim/kuberuntime/volume"
)

// Options say what a Manager works on.
type Options struct {
	Runtime runtimeapi.RuntimeServiceClient
	Image   runtimeapi.ImageServiceClient
	Dirs    pod.Dirs
	Host    criconfig.Host
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
	service   *service
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
	metrics := NewMetrics(o.Registerer, o.Now)
	m := &Manager{
		o:         o,
		service:   &service{runtime: o.Runtime, image: o.Image, metrics: metrics},
		generator: &criconfig.Generator{Host: o.Host, Dirs: o.Dirs},
		volumes:   &volume.Maker{Dirs: o.Dirs, Host: o.Host, MountTmpfs: volume.MountTmpfs, BindMount: volume.BindMount},
		crashes:   newBackoff(),
		changed:   make(chan struct{}, 1),
	}
	m.puller = newPuller(o, m.service)
	v, err := m.service.version(ctx)
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
	v, err := m.service.version(ctx)
	return v.GetRuntimeVersion(), err
}

// APIVersion is the runtime's API version, asked for once in 60 s.
func (m *Manager) APIVersion(ctx context.Context) (string, error) {
	if v, ok := m.version.get(m.o.Now()); ok {
		return v, nil
	}
	v, err := m.service.version(ctx)
	if err != nil {
		return "", err
	}
	m.version.set(v.GetRuntimeApiVersion(), m.o.Now())
	return v.GetRuntimeApiVersion(), nil
}

// Status is the runtime's status; an answer without the two required conditions is an error.
func (m *Manager) Status(ctx context.Context) (*runtimeapi.RuntimeStatus, error) {
	return m.service.status(ctx)
}

// UpdatePodCIDR tells the runtime which addresses pods get.
func (m *Manager) UpdatePodCIDR(ctx context.Context, cidr string) error {
	req := &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}}}
	_, err := call(ctx, m.service.metrics, "update_runtime_config", m.o.Runtime.UpdateRuntimeConfig, req)
	return err
}

// RunInContainer runs a command to its end.
func (m *Manager) RunInContainer(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, error) {
	stdout, stderr, err := m.service.execSync(ctx, id, cmd, timeout)
	return append(stdout, stderr...), err
}

// GetExec asks for the URL of an exec stream.
func (m *Manager) GetExec(ctx context.Context, id string, cmd []string, stdin, stdout, stderr, tty bool) (string, error) {
	resp, err := call(ctx, m.service.metrics, "exec", m.o.Runtime.Exec,
		&runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Tty: tty, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	return streamURL(resp.GetUrl(), err)
}

// GetAttach asks for the URL of an attach stream.
func (m *Manager) GetAttach(ctx context.Context, id string, stdin, stdout, stderr, tty bool) (string, error) {
	resp, err := call(ctx, m.service.metrics, "attach", m.o.Runtime.Attach,
		&runtimeapi.AttachRequest{ContainerId: id, Tty: tty, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	return streamURL(resp.GetUrl(), err)
}

// GetPortForward asks for the URL of a port-forward stream.
func (m *Manager) GetPortForward(ctx context.Context, sandboxID string, ports []int32) (string, error) {
	resp, err := call(ctx, m.service.metrics, "port_forward", m.o.Runtime.PortForward,
		&runtimeapi.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	return streamURL(resp.GetUrl(), err)
}

func streamURL(url string, err error) (string, error) {
	if err == nil && url == "" {
		err = errors.New("the runtime answered without a stream URL")
	}
	return url, err
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
