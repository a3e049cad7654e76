package shim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"github.com/crishim/crishim/internal/rundir"
)

// Embedded is a shim that lives as long as one command, which reaches it over a
// socket that only the user can open.
type Embedded struct {
	shim   *Shim
	dir    *rundir.Dir
	socket string
	served chan error

	close    sync.Once
	closeErr error
}

// StartEmbedded starts a shim with a fresh private directory and clears away what
// killed commands of the same user left.
func StartEmbedded(ctx context.Context, o Options) (*Embedded, error) {
	base, err := rundir.Base(lookupOf(o))
	if err != nil {
		return nil, fmt.Errorf("private directory for the embedded shim: %w", err)
	}
	return startEmbedded(ctx, o, base)
}

func startEmbedded(ctx context.Context, o Options, base string) (*Embedded, error) {
	dir, err := rundir.New(base, shimDirs)
	if err != nil {
		return nil, fmt.Errorf("private directory for the embedded shim: %w", err)
	}
	o.ExecRecords, o.temporaries = filepath.Join(dir.Path, recordsName), filepath.Join(dir.Path, temporaryName)
	s, err := New(o)
	if err != nil {
		return nil, errors.Join(err, dir.Remove())
	}
	sweep(ctx, base, s.engine.Endpoint().Host, s.engine, s.areas.containerArea)
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

// Endpoint is where a CRI client reaches the shim.
func (e *Embedded) Endpoint() string { return "unix://" + e.socket }

// Close ends the shim and removes its directory.
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
