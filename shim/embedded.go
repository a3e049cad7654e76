package shim

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sync"

	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/shim/stream"
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
	if o.Engine.LookupEnv == nil {
		o.Engine.LookupEnv = os.LookupEnv
	}
	base, err := rundir.Base(o.Engine.LookupEnv)
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
	sweep(ctx, base, s.engine.Endpoint().Host, s.engine, s.service.containers)
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

const (
	socketName  = "cri.sock"
	recordsName = "exec"
)

// shimDirs are the private directories of embedded shims. There is nothing in them
// but the socket and the records of running execs and of temporary containers.
var shimDirs = rundir.Kind{
	Name:    "shim",
	Entries: regexp.MustCompile(`cri\.sock|exec(/` + stream.RecordName + `)?|containers(/` + temporaryFile + `)?`),
}

// sweep removes what commands of this user left that were killed before they
// could: run directories, with the processes and containers that are recorded
// there. A directory with containers that could not be removed stays for the next
// command.
func sweep(ctx context.Context, base, host string, engine stream.ExecInspector, containers containerLister) {
	rundir.Sweep(base, shimDirs, func(dir string) error {
		_ = stream.EndRecorded(ctx, filepath.Join(dir, recordsName), engine)
		return temporaries{dir: filepath.Join(dir, temporaryName), engine: host}.remove(ctx, containers)
	})
}
