// Package node implements the RPCs about the runtime itself and tracks the availability of the engine.
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

type Engine interface {
	ServerVersion(ctx context.Context) (types.Version, error)
	Ping(ctx context.Context) (types.Ping, error)
	Info(ctx context.Context) (system.Info, error)
}

type Networks struct {
	network.Plugins
	CNI     *cni.Plugin
	Kubenet bool // CNI with a generated configuration
}

type Options struct {
	Engine       Engine
	Networks     Networks
	PauseImage   string
	CgroupDriver string // the kubelet's; "" if unknown
	Daemon       bool   // the shim keeps running without an engine
}

type Service struct{ Options }

func New(o Options) *Service { return &Service{o} }

const (
	runtimeName = "docker"
	criVersion  = "v1"
	// unknownVersion is reported because CRI clients reject an empty version.
	unknownVersion = "unknown"
)

// Limits for a daemon's calls to the engine, which may never answer.
const (
	versionTimeout = 5 * time.Second
	statusTimeout  = 6 * time.Second
)

var errSilent = errors.New("the docker engine does not answer")

// withTimeout limits a daemon's call to the engine, so that it can answer within the client's timeout.
func (s *Service) withTimeout(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if !s.Daemon {
		return context.WithCancel(ctx)
	}
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(end)/2)
	}
	return context.WithTimeoutCause(ctx, timeout, errSilent)
}

// Version succeeds without the engine in a daemon, because clients that fail to get the version never call Status.
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

// RuntimeConfig falls back to the kubelet's cgroup driver, which the engine must use to be ready.
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

// UpdateRuntimeConfig keeps the first pod CIDR, because pods have addresses in it.
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

// PodCIDR parses comma-separated ranges. It rejects host addresses such as 10.0.0.1/24, because plugins would reject
// them for each pod.
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
