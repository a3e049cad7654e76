package shim

import (
	"context"
	"fmt"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	// kubeletVersion is the value that kubelets insist on.
	kubeletVersion = "0.1.0"
	runtimeName    = "docker"
	criVersion     = "v1"
)

// Version names the engine and the version of the CRI.
func (n *node) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	v, err := n.engine.ServerVersion(ctx)
	if err != nil {
		return nil, fmt.Errorf("ask the docker engine for its version: %w", err)
	}
	return &runtimeapi.VersionResponse{
		Version:           kubeletVersion,
		RuntimeName:       runtimeName,
		RuntimeVersion:    v.Version,
		RuntimeApiVersion: criVersion,
	}, nil
}
