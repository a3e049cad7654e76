// Package container implements CRI's container RPCs: create, start, stop, remove, list, status and update.
//
// CreateContainer has three parts: validate checks the request alone; gather collects facts about the sandbox, the
// image and the engine; makePlan, a pure function, computes the engine's configuration from the request and the facts.
// The container is created afterwards. Unsupported settings are refused with an error, except CPU shares, negative oom
// scores, SELinux options and the default limits of kubelets (see isDefault).
package container

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"sync"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	"golang.org/x/sync/singleflight"

	"github.com/crishim/crishim/shim/docker"
	"github.com/crishim/crishim/shim/host"
	"github.com/crishim/crishim/shim/internal/keylock"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/internal/logdir"
)

type Engine interface {
	lifecycle.Engine
	ContainerStart(ctx context.Context, id string, o container.StartOptions) error
	ContainerKill(ctx context.Context, id, signal string) error
	ContainerPause(ctx context.Context, id string) error
	ContainerUnpause(ctx context.Context, id string) error
	ContainerList(ctx context.Context, o container.ListOptions) ([]container.Summary, error)
	ContainerUpdate(ctx context.Context, id string, c container.UpdateConfig) (container.UpdateResponse, error)
	CopyFromContainer(ctx context.Context, id, path string) (io.ReadCloser, container.PathStat, error)
	ContainerStatPath(ctx context.Context, id, path string) (container.PathStat, error)
	ImageInspect(ctx context.Context, id string, o ...docker.ImageInspectOption) (image.InspectResponse, error)
	Info(ctx context.Context) (system.Info, error)
	ClientVersion() string
}

type Options struct {
	Engine Engine
	Logs   Logs // nil: link to the engine's log files
	OOM    *host.OOMScore
	// Capabilities returns the capabilities that the engine can add, or nil for all or if unknown. May be nil.
	Capabilities func() []string
	Owner        string // owner label of helpers and temporary containers, unique to this process; "" in a daemon
	// NoteTemporary is called before a temporary container is created. If it is nil, temporary containers get no owner.
	NoteTemporary func() error
	Log           *slog.Logger
}

type Service struct {
	Options
	writesLogs bool     // a container counts as running until its log is complete
	unchanged  sync.Map // names of resources that the host cannot change; each is logged once
	users      userFiles
	info       infoCache
	creating   keylock.Lock       // by container name
	inspecting singleflight.Group // by image id
	pending    pending
}

func New(o Options) *Service {
	s := &Service{Options: o, writesLogs: o.Logs != nil, users: userFiles{engine: o.Engine, owner: o.Owner}, info: infoCache{engine: o.Engine}}
	if o.Logs == nil {
		s.Logs = links{}
	}
	s.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	s.OOM = cmp.Or(o.OOM, &host.OOMScore{Log: s.Log})
	s.Capabilities = sync.OnceValue(func() []string {
		if o.Capabilities == nil {
			return nil
		}
		names := o.Capabilities()
		if names != nil {
			s.Log.Warn("the host allows the engine not all capabilities, containers that ask for all get the others", "capabilities", names)
		}
		return names
	})
	return s
}

// infoCache caches the engine's Info for a minute, because Info takes longer than creating a container.
type infoCache struct {
	engine Engine

	mu   sync.Mutex // guards info and at
	info system.Info
	at   time.Time
}

func (c *infoCache) get(ctx context.Context) (system.Info, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < time.Minute {
		return c.info, nil
	}
	info, err := c.engine.Info(ctx)
	if err != nil {
		return info, fmt.Errorf("ask the docker engine about itself: %w", err)
	}
	c.info, c.at = info, time.Now()
	return info, nil
}

type Logs interface {
	// Starting is called before the start, because the container may end before Started is called. The caller calls
	// over after Started or after a failed start.
	Starting(id string, at logdir.Place) (over func())
	// Started is called after a successful start; the container may have ended already. file is the engine's log file,
	// if it has one.
	Started(ctx context.Context, id string, at logdir.Place, file string) error
	Unfinished(ctx context.Context, id string) bool
	// Complete waits until the log of an ended container is complete or makes no progress.
	Complete(ctx context.Context, id string)
	Removed(ctx context.Context, id string, at logdir.Place, file string) error
}

// links creates a symbolic link to the engine's log file, for a shim that ends before the container.
type links struct{}

func (links) Started(_ context.Context, _ string, at logdir.Place, file string) error {
	if file == "" {
		return nil
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return nil
	}
	dir, name, err := at.Open()
	if err != nil {
		return err
	}
	defer dir.Close()
	err = dir.Symlink(file, name)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	return err
}

func (links) Starting(string, logdir.Place) func()    { return func() {} }
func (links) Unfinished(context.Context, string) bool { return false }
func (links) Complete(context.Context, string)        {}

func (links) Removed(_ context.Context, _ string, at logdir.Place, file string) error {
	dir, name, err := at.OpenExisting()
	if err != nil {
		return nil // without the log directory the link is gone, too
	}
	defer dir.Close()
	target, err := dir.Readlink(name)
	if err != nil || target != file {
		return nil
	}
	if err := dir.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
