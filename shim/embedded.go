package shim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
)

// Embedded is a shim that lives as long as one command, on a socket that only
// the user can reach.
type Embedded struct {
	shim   *Shim
	dir    *runDir
	served chan error

	close    sync.Once
	closeErr error
}

// StartEmbedded starts a shim on a socket in a fresh private directory and
// clears away what killed commands of the same user left.
func StartEmbedded(ctx context.Context, o Options) (*Embedded, error) {
	base, err := baseDir(lookupOf(o))
	if err != nil {
		return nil, err
	}
	return startEmbedded(ctx, o, base)
}

func startEmbedded(ctx context.Context, o Options, base string) (*Embedded, error) {
	dir, err := newRunDir(base)
	if err != nil {
		return nil, err
	}
	o.ExecRecords, o.temporaries = dir.execRecords(), dir.temporaries()
	s, err := New(o)
	if err != nil {
		return nil, errors.Join(err, dir.remove())
	}
	sweep(ctx, base, s.engine.Endpoint().Host, s.engine, s.areas.containerArea)
	e := &Embedded{shim: s, dir: dir, served: make(chan error, 1)}
	if err := e.start(ctx); err != nil {
		return nil, errors.Join(err, s.Close(), dir.remove())
	}
	return e, nil
}

func (e *Embedded) start(ctx context.Context) error {
	l, err := listenPrivate(e.dir.socket())
	if err != nil {
		return err
	}
	if err := e.shim.Start(ctx); err != nil {
		return errors.Join(err, l.Close())
	}
	go func(l net.Listener) { e.served <- e.shim.Serve(l) }(l)
	return nil
}

// Endpoint is where a CRI client reaches the shim.
func (e *Embedded) Endpoint() string { return "unix://" + e.dir.socket() }

// Close ends the shim and removes its directory.
func (e *Embedded) Close() error {
	e.close.Do(func() {
		err := e.shim.Close()
		if served := <-e.served; served != nil {
			err = errors.Join(err, fmt.Errorf("embedded shim: %w", served))
		}
		e.closeErr = errors.Join(err, e.dir.remove())
	})
	return e.closeErr
}
