package shim

import (
	"context"
	"fmt"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

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
func (n *node) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	asked, cancel := n.patience(ctx, versionTime)
	defer cancel()
	v, err := n.engine.ServerVersion(asked)
	switch {
	case err == nil:
	case n.stays && ctx.Err() == nil:
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
