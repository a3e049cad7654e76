package shim

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/crishim/crishim/internal/lazyregexp"
	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/shim/stream"
)

type Embedded struct {
	shim   *Shim
	dir    *rundir.Dir
	socket string
	served chan error

	close    sync.Once
	closeErr error
}

// StartEmbedded starts a shim for one command and removes the leftovers of killed commands of the same user. The
// kubelet's counterpart was runDockershim.
func StartEmbedded(ctx context.Context, o Options) (*Embedded, error) {
	if o.Engine.LookupEnv == nil {
		o.Engine.LookupEnv = os.LookupEnv
	}
	base, err := rundir.Base(o.Engine.LookupEnv)
	if err != nil {
		return nil, fmt.Errorf("private directory for the embedded shim: %w", err)
	}
	dir, err := rundir.New(base, shimDirs)
	if err != nil {
		return nil, fmt.Errorf("private directory for the embedded shim: %w", err)
	}
	o.ExecRecords, o.temporaries = filepath.Join(dir.Path, recordsName), filepath.Join(dir.Path, temporaryName)
	s, err := New(o)
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	sweep(ctx, base, s.engine.Endpoint().Host, s.engine, s.service.containerService)
	if err := s.Start(ctx); err != nil {
		return nil, errors.Join(err, s.Close(), dir.Remove())
	}
	socket := filepath.Join(dir.Path, socketName)
	l, err := listenPrivate(socket)
	if err != nil {
		return nil, errors.Join(err, s.Close(), dir.Remove())
	}
	e := &Embedded{shim: s, dir: dir, socket: socket, served: make(chan error, 1)}
	go func() { e.served <- s.Serve(l) }()
	return e, nil
}

func (e *Embedded) Endpoint() string { return "unix://" + e.socket }

func (e *Embedded) Close() error {
	e.close.Do(func() {
		err := e.shim.Close()
		if failed := <-e.served; failed != nil {
			err = errors.Join(err, fmt.Errorf("embedded shim: %w", failed))
		}
		e.closeErr = errors.Join(err, e.dir.Remove())
	})
	return e.closeErr
}

const (
	socketName    = "cri.sock"
	recordsName   = "exec"   // directory of the records of running execs
	temporaryName = "engine" // file with the engine's address, written before a temporary container is created and read by sweep
)

const temporaryTimeout = 10 * time.Second

var shimDirs = rundir.Kind{
	Name:    "shim",
	Entries: lazyregexp.New(`^(cri\.sock|exec(/` + stream.RecordName + `)?|engine)$`),
}

// sweep cleans up after killed commands. It kills their recorded exec processes and removes their temporary and
// helper containers. If a temporary container cannot be removed, for example because it is on another engine, sweep
// keeps the killed command's directory, and the next command tries again.
func sweep(ctx context.Context, base, host string, engine stream.ExecInspector, containers interface {
	RemoveOwned(ctx context.Context, owner string) error
},
) {
	rundir.Sweep(base, shimDirs, func(dir string) error {
		_ = stream.EndRecorded(ctx, filepath.Join(dir, recordsName), engine)
		ctx, cancel := context.WithTimeout(ctx, temporaryTimeout)
		defer cancel()
		engineOf, err := os.ReadFile(filepath.Join(dir, temporaryName))
		if err == nil && len(engineOf) > 0 && string(engineOf) != host {
			return fmt.Errorf("it made containers on the engine at %s", engineOf)
		}
		removed := containers.RemoveOwned(ctx, filepath.Base(dir))
		if errors.Is(err, fs.ErrNotExist) {
			// Without the file "engine", the killed command had no temporary container, but it may have had a helper
			// container. A failed removal is ignored, because `crishim serve` removes old helpers (see RemoveOwned).
			return nil
		}
		return errors.Join(err, removed)
	})
}
