package shim

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"

	"google.golang.org/grpc"

	"github.com/crishim/crishim/internal/rundir"
)

// Embedded is a shim that lives as long as one command. The command calls it
// directly; for what needs a connection there is a socket that only the user can
// reach.
type Embedded struct {
	shim *Shim
	dir  *rundir.Dir

	mu     sync.Mutex // guards the next two
	closed bool
	served chan error // nil until there is a socket

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
	return &Embedded{shim: s, dir: dir}, nil
}

// Invoke makes a unary call, as a CRI client's over a connection, without one.
func (e *Embedded) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return e.shim.Invoke(ctx, method, args, reply, opts...)
}

// Endpoint is where a CRI client reaches the shim. It listens there from the
// first time on that somebody asks.
func (e *Embedded) Endpoint() (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	socket := filepath.Join(e.dir.Path, socketName)
	address := "unix://" + socket
	if e.served != nil {
		return address, nil
	}
	if e.closed {
		return "", errors.New("the embedded shim has ended")
	}
	l, err := listenPrivate(socket)
	if err != nil {
		return "", err
	}
	served := make(chan error, 1)
	go func() { served <- e.shim.Serve(l) }()
	e.served = served
	return address, nil
}

// Close ends the shim and removes its directory.
func (e *Embedded) Close() error {
	e.close.Do(func() {
		e.mu.Lock()
		e.closed = true
		served := e.served
		e.mu.Unlock()
		err := e.shim.Close()
		if served != nil {
			if failed := <-served; failed != nil {
				err = errors.Join(err, fmt.Errorf("embedded shim: %w", failed))
			}
		}
		e.closeErr = errors.Join(err, e.dir.Remove())
	})
	return e.closeErr
}
