package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/time/rate"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/probe"
	"github.com/crishim/crishim/kuberuntime/volume"
)

type Options struct {
	// Runtime and Image are connections to the two services, often the same one.
	Runtime, Image grpc.ClientConnInterface

	Dirs pod.Dirs
	Host criconfig.Host
	// Auth finds the host's own credentials for an image. It may be nil.
	Auth func(ctx context.Context, image string) (*runtimeapi.AuthConfig, error)
	// Pull pulls an image, with progress for example; nil means the CRI's PullImage.
	Pull func(ctx context.Context, image string, auth *runtimeapi.AuthConfig, sandbox *runtimeapi.PodSandboxConfig) (string, error)
	// Events receives events. It must be safe for concurrent calls, also for the same pod.
	Events func(Event)
	// Endpoint names the runtime, so that pods of several runtimes on one host are told apart.
	Endpoint string
	// Version is the runtime's answer to Version; nil if it was not asked yet.
	Version *runtimeapi.VersionResponse
	// SerialPulls pulls one image at a time. PullQPS and PullBurst limit how often a pull may start; a PullQPS of 0
	// means no limit. A pull above the limit fails, as in the kubelet, or waits for its turn if PullsWait is set.
	SerialPulls bool
	PullQPS     float64
	PullBurst   int
	PullsWait   bool
	Registerer  prometheus.Registerer
	Now         func() time.Time
}

// Manager runs pods on a CRI runtime, like the kubelet's kubeGenericRuntimeManager. It is safe for concurrent use, as long as no two calls
// change the same pod.
type Manager struct {
	o         Options
	runtime   runtimeapi.RuntimeServiceClient
	image     runtimeapi.ImageServiceClient
	generator *criconfig.Generator
	volumes   *volume.Maker
	backOff   *backoff // of containers, by crashKey
	prober    *probe.Manager
	states    stateWriter
	rounds    *podMetrics
	name      string // from the runtime

	stops func() ([]Event, error) // reads the log of stops by users; only the first call reads the files

	pulling      chan struct{} // holds a token during a pull; nil for parallel pulls
	pullRate     *rate.Limiter
	imageBackOff *backoff // by pod and image

	mu         sync.Mutex // guards the fields below
	apiVersion string     // from the runtime
	apiAsked   time.Time
	identity   identity // empty until the runtime was asked
}

// ConnOptions returns the options for a connection.
func ConnOptions(c *client.Conn) Options {
	return Options{Runtime: c.ClientConn(), Image: c.ImageClientConn(), Endpoint: c.RuntimeEndpoint, Version: c.Version}
}

const versionCacheTTL = 60 * time.Second

// New returns a Manager of a runtime, like the kubelet's NewKubeGenericRuntimeManager. It fails if the runtime answers
// with another API version than kube.APIVersion.
func New(ctx context.Context, o Options) (*Manager, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	counts := newCounts(o.Registerer, o.Now)
	m := &Manager{
		o:            o,
		runtime:      runtimeapi.NewRuntimeServiceClient(instrumented{o.Runtime, counts}),
		image:        runtimeapi.NewImageServiceClient(instrumented{o.Image, counts}),
		generator:    &criconfig.Generator{Host: o.Host, Dirs: o.Dirs},
		volumes:      &volume.Maker{Dirs: o.Dirs, Host: o.Host, MountTmpfs: volume.MountTmpfs, BindMount: volume.BindMount},
		backOff:      newBackoff(),
		imageBackOff: newBackoff(),
		states:       stateWriter{pods: map[string]*trackedPod{}},
		rounds:       newPodMetrics(o.Registerer),
		pullRate:     rate.NewLimiter(rate.Limit(o.PullQPS), max(o.PullBurst, 1)),
	}
	m.stops = sync.OnceValues(func() ([]Event, error) { return readEvents(eventFiles(o.Dirs.Root, "stops")) })
	if o.PullQPS <= 0 {
		m.pullRate.SetLimit(rate.Inf)
	}
	if o.SerialPulls {
		m.pulling = make(chan struct{}, 1)
	}
	v, err := o.Version, error(nil)
	if v == nil {
		v, err = m.askVersion(ctx)
	}
	if err != nil {
		return nil, err
	}
	if v.GetVersion() != kube.APIVersion {
		return nil, fmt.Errorf("invalid kube API version %q of the runtime: must be %q", v.GetVersion(), kube.APIVersion)
	}
	m.volumes.Warn = func(p *v1.Pod, format string, args ...any) { m.warn(p, "", EventVolumes, format, args...) }
	m.prober = probe.NewManager(m.probeExec, m.probeChanged)
	m.name = v.GetRuntimeName()
	return m, nil
}

// Close ends the probes and releases the pods.
func (m *Manager) Close() {
	m.prober.Close()
	m.states.mu.Lock()
	uids := slices.Collect(maps.Keys(m.states.pods))
	m.states.mu.Unlock()
	for _, uid := range uids {
		m.closeState(uid)
	}
}

func (m *Manager) Type() string { return m.name }

func (m *Manager) Version(ctx context.Context) (string, error) {
	v, err := m.askVersion(ctx)
	return v.GetRuntimeVersion(), err
}

// APIVersion returns the runtime's API version, cached for 60 s.
func (m *Manager) APIVersion(ctx context.Context) (string, error) {
	m.mu.Lock()
	known, age := m.apiVersion, m.o.Now().Sub(m.apiAsked).Abs() // the clock may have been set back
	m.mu.Unlock()
	if age < versionCacheTTL {
		return known, nil
	}
	v, err := m.askVersion(ctx)
	return v.GetRuntimeApiVersion(), err
}

func (m *Manager) askVersion(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	v, err := m.runtime.Version(ctx, &runtimeapi.VersionRequest{Version: kube.APIVersion})
	if err == nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.apiVersion, m.apiAsked = v.GetRuntimeApiVersion(), m.o.Now()
	}
	return v, err
}

// Status returns the runtime's status; an answer without the two required conditions is an error.
func (m *Manager) Status(ctx context.Context) (*runtimeapi.RuntimeStatus, error) {
	resp, err := m.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return nil, err
	}
	if len(resp.GetStatus().GetConditions()) < 2 {
		return nil, errors.New("the runtime's status has no conditions of the runtime and its network")
	}
	return resp.GetStatus(), nil
}

// UpdatePodCIDR sets the addresses that the runtime gives to pods.
func (m *Manager) UpdatePodCIDR(ctx context.Context, cidr string) error {
	req := &runtimeapi.UpdateRuntimeConfigRequest{RuntimeConfig: &runtimeapi.RuntimeConfig{NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: cidr}}}
	_, err := m.runtime.UpdateRuntimeConfig(ctx, req)
	return err
}

// CommandError is the result of a command in a container with a non-zero exit status.
type CommandError struct {
	Code   int
	Stderr string
}

func (e *CommandError) Error() string { return fmt.Sprintf("command ended with status %d", e.Code) }

// errTimeout is the result of a command that timed out.
var errTimeout = errors.New("command timed out")

// execGrace is added to a command's timeout for the answer of ExecSync.
const execGrace = 2 * time.Minute

// RunInContainer runs a command to its end and returns its stdout and then its stderr.
func (m *Manager) RunInContainer(ctx context.Context, id string, cmd []string, timeout time.Duration) ([]byte, error) {
	seconds := int64((timeout + time.Second - 1) / time.Second)
	if timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, timeout+execGrace)
		defer cancel()
		ctx = limited
	}
	resp, err := m.runtime.ExecSync(ctx, &runtimeapi.ExecSyncRequest{ContainerId: id, Cmd: cmd, Timeout: seconds})
	if status.Code(err) == codes.DeadlineExceeded && ctx.Err() == nil { // the command has timed out, not the call
		return nil, fmt.Errorf("%w after %s", errTimeout, timeout)
	}
	if err == nil && resp.GetExitCode() != 0 {
		err = &CommandError{Code: int(resp.GetExitCode()), Stderr: string(resp.GetStderr())}
	}
	return append(resp.GetStdout(), resp.GetStderr()...), err
}

func (m *Manager) GetExec(ctx context.Context, id string, cmd []string, stdin, stdout, stderr, tty bool) (string, error) {
	resp, err := m.runtime.Exec(ctx, &runtimeapi.ExecRequest{ContainerId: id, Cmd: cmd, Tty: tty, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	return resp.GetUrl(), err
}

func (m *Manager) GetAttach(ctx context.Context, id string, stdin, stdout, stderr, tty bool) (string, error) {
	resp, err := m.runtime.Attach(ctx, &runtimeapi.AttachRequest{ContainerId: id, Tty: tty, Stdin: stdin, Stdout: stdout, Stderr: stderr})
	return resp.GetUrl(), err
}

func (m *Manager) GetPortForward(ctx context.Context, sandboxID string, ports []int32) (string, error) {
	resp, err := m.runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandboxID, Port: ports})
	return resp.GetUrl(), err
}
