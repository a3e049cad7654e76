// Package sandbox implements CRI's pod sandbox RPCs: run, stop, remove, status, list and update.
//
// A sandbox is an engine container with a pause process. Its labels identify the pod. dockershim and cri-dockerd use
// the same labels, so their pods work too.
package sandbox

import (
	"cmp"
	"context"
	"log/slog"
	"sync"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/system"

	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/internal/keylock"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/pause"
)

type Engine interface {
	pause.Engine
	lifecycle.Engine
	Info(ctx context.Context) (system.Info, error)
	ContainerStart(ctx context.Context, id string, options container.StartOptions) error
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
}

// Containers stops and removes the containers of a pod. The container service implements it.
type Containers interface {
	Kill(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
}

type Options struct {
	Engine     Engine
	Containers Containers
	Networks   podnetwork.Plugins
	PauseImage string // "": the built-in image
	OOM        *host.OOMScore
	Log        *slog.Logger
}

type Service struct {
	Options
	creating  keylock.Lock // by sandbox name
	unlimited sync.Once    // guards the warning that the bridge does not limit bandwidth
	pending   pending
}

func New(o Options) *Service {
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	o.OOM = cmp.Or(o.OOM, &host.OOMScore{Log: o.Log})
	return &Service{Options: o}
}
