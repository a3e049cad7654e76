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

// name is the --network-plugin that new pods get.
func (n Networks) name(ctx context.Context) string {
	if n.Kubenet {
		return "kubenet"
	}
	return n.ForNew(ctx, false).Name()
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

func (s *Service) info(ctx context.Context) (system.Info, error) {
	info, err := s.Engine.Info(ctx)
	if err != nil {
		return info, fmt.Errorf("ask the docker engine about itself: %w", err)
	}
	return info, nil
}

// waitFor is how long to wait for an engine that may not answer at all. A shim
// that stays has something to say about that, and needs some of the client's time
// for it.
func (s *Service) waitFor(ctx context.Context, most time.Duration) (context.Context, context.CancelFunc) {
	if !s.Daemon {
		return context.WithCancel(ctx)
	}
	if end, ok := ctx.Deadline(); ok {
		most = min(most, time.Until(end)/2)
	}
	return context.WithTimeoutCause(ctx, most, errSilent)
}

var errSilent = errors.New("the docker engine does not answer")

const (
	// kubeletVersion is the value that kubelets insist on.
	kubeletVersion = "0.1.0"
	runtimeName    = "docker"
	criVersion     = "v1"
)

// unknownVersion is the engine's version while there is no engine to tell it.
// The CRI's clients refuse an empty one.
const unknownVersion = "unknown"

// versionTime is how long a shim that stays asks an engine for its version.
const versionTime = 5 * time.Second

// Version names the engine and the version of the CRI. A shim that stays is a
// runtime whether its engine is there or not: every client asks for the version
// first, and would never come to Status, which has the reason.
func (s *Service) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	asked, cancel := s.waitFor(ctx, versionTime)
	defer cancel()
	v, err := s.Engine.ServerVersion(asked)
	switch {
	case err == nil:
	case s.Daemon && ctx.Err() == nil:
		v.Version = unknownVersion
	default:
		return nil, fmt.Errorf("ask the docker engine for its version: %w", err)
	}
	return &runtimeapi.VersionResponse{
		Version:           kubeletVersion,
		RuntimeName:       runtimeName,
		RuntimeVersion:    v.Version,
		RuntimeApiVersion: criVersion,
	}, nil
}

// RuntimeConfig tells the engine's cgroup driver. While the engine is away that is
// the one that it must have to be ready, where somebody said which.
func (s *Service) RuntimeConfig(ctx context.Context, _ *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	asked, cancel := s.waitFor(ctx, statusTime)
	defer cancel()
	info, err := s.info(asked)
	if err != nil && s.CgroupDriver != "" && ctx.Err() == nil {
		info.CgroupDriver, err = s.CgroupDriver, nil
	}
	if err != nil {
		return nil, err
	}
	driver, err := cgroupDriver(info.CgroupDriver)
	if err != nil {
		return nil, err
	}
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: driver}}, nil
}

// cgroupDriver never leaves the answer to the zero value, which means systemd.
func cgroupDriver(engine string) (runtimeapi.CgroupDriver, error) {
	switch engine {
	case "systemd":
		return runtimeapi.CgroupDriver_SYSTEMD, nil
	case "cgroupfs":
		return runtimeapi.CgroupDriver_CGROUPFS, nil
	}
	return 0, fmt.Errorf("the engine's cgroup driver %q is neither systemd nor cgroupfs: %w", engine, errdefs.ErrFailedPrecondition)
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
