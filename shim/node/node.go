// Package node answers the RPCs about the runtime as a whole, and follows the engine as it
// comes and goes.
package node

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types"
	"github.com/docker/docker/api/types/system"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/network/cni"
)

// Engine is what the service needs of the Docker client.
type Engine interface {
	ServerVersion(ctx context.Context) (types.Version, error)
	Info(ctx context.Context) (system.Info, error)
}

// Networks are the network plugins of a shim and what else can be asked of them.
type Networks struct {
	network.Plugins
	CNI     *cni.Plugin
	Kubenet bool // which is CNI with a configuration of its own
}

// Options are the parts that a Service works with.
type Options struct {
	Engine       Engine
	Networks     Networks
	PauseImage   string
	CgroupDriver string // the one that the kubelet uses; "" where it is not known
	Daemon       bool   // the shim goes on without an engine
}

// Service answers Version, Status, RuntimeConfig and UpdateRuntimeConfig.
type Service struct{ Options }

// New builds the service.
func New(o Options) *Service { return &Service{o} }

const (
	runtimeName = "docker"
	criVersion  = "v1"
	// unknownVersion is the engine's version while there is no engine. The CRI's clients
	// refuse an empty one.
	unknownVersion = "unknown"
)

// How long a daemon waits for an engine that may not answer at all. A busy one may take
// its time; one that hangs has been waited for before, by the cache.
const (
	versionTimeout = 5 * time.Second
	statusTimeout  = 6 * time.Second
)

var errSilent = errors.New("the docker engine does not answer")

// withTimeout bounds a question to the engine. A daemon has an answer of its own where the
// engine has none, and needs some of the client's time for it.
func (s *Service) withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if !s.Daemon {
		return context.WithCancel(ctx)
	}
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/2)
	}
	return context.WithTimeoutCause(ctx, timeout, errSilent)
}

// Version names the engine and the version of the CRI. A daemon is a runtime whether its
// engine is there or not: every client asks for the version first, and would never come to
// Status, which has the reason.
func (s *Service) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	bounded, cancel := s.withTimeout(ctx, versionTimeout)
	defer cancel()
	v, err := s.Engine.ServerVersion(bounded)
	if err != nil {
		if !s.Daemon || ctx.Err() != nil {
			return nil, fmt.Errorf("ask the docker engine for its version: %w", err)
		}
		v.Version = unknownVersion
	}
	return &runtimeapi.VersionResponse{
		Version: kube.APIVersion, RuntimeName: runtimeName, RuntimeVersion: v.Version, RuntimeApiVersion: criVersion,
	}, nil
}

// RuntimeConfig returns the engine's cgroup driver. While the engine is away that is the
// one that it must have to be ready, where it is known.
func (s *Service) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	bounded, cancel := s.withTimeout(ctx, statusTimeout)
	defer cancel()
	info, err := s.Engine.Info(bounded)
	if err != nil {
		if s.CgroupDriver == "" || ctx.Err() != nil {
			return nil, fmt.Errorf("ask the docker engine about itself: %w", err)
		}
		info.CgroupDriver = s.CgroupDriver
	}
	var driver runtimeapi.CgroupDriver
	switch info.CgroupDriver {
	case "systemd":
		driver = runtimeapi.CgroupDriver_SYSTEMD
	case "cgroupfs":
		driver = runtimeapi.CgroupDriver_CGROUPFS
	default:
		return nil, fmt.Errorf("the engine's cgroup driver %q is neither systemd nor cgroupfs: %w", info.CgroupDriver, errdefs.ErrFailedPrecondition)
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// UpdateRuntimeConfig takes the pod CIDR that the node was given. The first one
// stays, because pods have addresses of it.
func (s *Service) UpdateRuntimeConfig(_ context.Context, r *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	podCIDR, err := PodCIDR(r.GetRuntimeConfig().GetNetworkConfig().GetPodCidr())
	if err != nil {
		return nil, fmt.Errorf("pod CIDR %w: %w", err, errdefs.ErrInvalidArgument)
	}
	if s.Networks.CNI != nil {
		s.Networks.CNI.SetPodCIDR(podCIDR)
	}
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// PodCIDR reads address ranges with commas between them; "" is none. Plugins refuse a
// range that is written with the address of a machine in it, for each pod, and
// the first range stays. So it is refused here.
func PodCIDR(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	var ranges []string
	for cidr := range strings.SplitSeq(text, ",") {
		prefix, err := netip.ParsePrefix(strings.TrimSpace(cidr))
		if err != nil {
			return "", fmt.Errorf("%q: must be an address range such as 10.244.3.0/24", cidr)
		}
		if prefix != prefix.Masked() {
			return "", fmt.Errorf("%q: the range that this address is in is %s", cidr, prefix.Masked())
		}
		ranges = append(ranges, prefix.String())
	}
	return strings.Join(ranges, ","), nil
}
