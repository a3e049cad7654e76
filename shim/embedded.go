package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/internal/rundir"
	"github.com/crishim/crishim/shim/stream"
)

// Embedded is a shim for the length of one command, which reaches it over a
// socket that only the user can open.
type Embedded struct {
	shim   *Shim
	dir    *rundir.Dir
	socket string
	served chan error

	close    sync.Once
	closeErr error
}

// StartEmbedded starts a shim in a new private directory, as the kubelet's runDockershim
// started dockershim inside the kubelet, and removes what killed commands of the same user
// left.
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

// Endpoint returns where a CRI client reaches the shim.
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

// What is in a private directory.
const (
	socketName    = "cri.sock"
	recordsName   = "exec"       // records of running execs
	temporaryName = "containers" // files that name temporary containers
)

// temporaryTimeout bounds the removal of what one killed command left.
const temporaryTimeout = 10 * time.Second

// shimDirs are the private directories of embedded shims. There is nothing in them
// but the socket and the records of running execs and of temporary containers.
var shimDirs = rundir.Kind{
	Name:    "shim",
	Entries: regexp.MustCompile(`cri\.sock|exec(/` + stream.RecordName + `)?|containers(/[0-9]+)?`), // as os.CreateTemp names them
}

// sweep removes what killed commands of this user left: run directories, with the
// processes and containers that are recorded there. A directory with containers that could
// not be removed stays for the next command.
func sweep(ctx context.Context, base, host string, engine stream.ExecInspector, containers containerLister) {
	rundir.Sweep(base, shimDirs, func(dir string) error {
		_ = stream.EndRecorded(ctx, filepath.Join(dir, recordsName), engine)
		ctx, cancel := context.WithTimeout(ctx, temporaryTimeout)
		defer cancel()
		_ = containers.RemoveHelpers(ctx, filepath.Base(dir)) // old ones are removed by any later sweep
		return temporaries{dir: filepath.Join(dir, temporaryName), engine: host}.remove(ctx, containers)
	})
}

// temporaries is a directory with a file for each container that must not
// outlive the command that makes it (see api.AnnotationTemporary). A command
// that is killed leaves the files, and the next one removes what they name.
type temporaries struct {
	dir    string
	engine string // address of the engine that the containers are on
}

// temporaryNote is what a file holds. A container has no id before it is made, and
// its command may be killed right after.
type temporaryNote struct {
	Engine string `json:"engine"`
	Pod    string `json:"pod"`
	Name   string `json:"name"`
}

func (t temporaries) note(pod, name string) error {
	text, err := json.Marshal(temporaryNote{Engine: t.engine, Pod: pod, Name: name})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(t.dir, "")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// containerLister is what removing needs of the container service.
type containerLister interface {
	ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
	RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error)
	RemoveHelpers(ctx context.Context, owner string) error
}

// remove removes the containers that a killed command's files name, and each
// file whose container is gone.
func (t temporaries) remove(ctx context.Context, containers containerLister) error {
	root, err := rundir.OpenPrivate(t.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	files, err := fs.ReadDir(root.FS(), ".")
	errs := []error{err}
	for _, file := range files {
		if strings.Trim(file.Name(), "0123456789") != "" {
			continue // not crishim's
		}
		err := t.removeNoted(ctx, root, file.Name(), containers)
		if err == nil {
			err = root.Remove(file.Name())
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (t temporaries) removeNoted(ctx context.Context, root *os.Root, name string, containers containerLister) error {
	text, err := rundir.ReadFile(root, name)
	if err != nil {
		return err
	}
	var n temporaryNote
	if json.Unmarshal(text, &n) != nil {
		return nil // killed while it wrote, so nothing was made
	}
	if n.Engine != t.engine {
		return fmt.Errorf("it was made on the engine at %s", n.Engine)
	}
	list, err := containers.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: n.Pod}})
	if err != nil {
		return err
	}
	for _, c := range list.GetContainers() {
		_, temporary := c.GetAnnotations()[api.AnnotationTemporary]
		if !temporary || c.GetMetadata().GetName() != n.Name {
			continue
		}
		if _, err := containers.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.GetId()}); err != nil {
			return err
		}
	}
	return nil
}
