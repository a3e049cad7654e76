// Package container answers the CRI's container RPCs: create, start, stop, remove, list,
// status and update.
//
// CreateContainer has three parts: validate checks the request alone, gather reads the
// facts (the sandbox, the image, the engine), and makePlan, a pure function, makes the
// engine's configuration of both. Only then is anything created. What Docker cannot do is
// refused with a sentence, never dropped.
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
	Logs   Logs // nil: links to the engine's files
	OOM    *host.OOMScore
	// Capabilities returns those that the engine can add if it cannot add all; may be nil.
	Capabilities func() []string
	Owner        string // of helpers and temporary containers, unique to a process that may be killed
	// NoteTemporary is called before a temporary container is made; nil: there is no owner to outlive.
	NoteTemporary func() error
	Log           *slog.Logger
}

type Service struct {
	Options
	writesLogs bool     // a container is reported as ended later than the engine says
	unchanged  sync.Map // names of resources that the host has refused to change
	users      userFiles
	info       infoCache
	creating   keylock.Lock // by container name
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

// infoCache keeps the engine's Info for a minute: asking costs more than creating a container.
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

// Logs follows the life of containers that have a log path.
type Logs interface {
	// Starting is called before the start: the container may end before Started is called. over is called after that,
	// or when the start has failed.
	Starting(id string, at logdir.Place) (over func())
	// Started is called when the container runs; file is the engine's own log file, if it has one.
	Started(ctx context.Context, id string, at logdir.Place, file string) error
	// Unfinished reports whether an ended container's log lacks lines.
	Unfinished(ctx context.Context, id string) bool
	// Complete waits until the log of an ended container is complete, or makes no progress.
	Complete(ctx context.Context, id string)
	Removed(ctx context.Context, id string, at logdir.Place, file string) error
}

// links makes a symbolic link to the engine's own log file, for a shim that does not stay to write logs.
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
		return nil // and no link in it
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
