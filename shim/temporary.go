package shim

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/internal/rundir"
)

const (
	temporaryName = "containers"
	temporaryFile = `[0-9]+`         // as os.CreateTemp names them
	temporaryTime = 10 * time.Second // for what one killed command left to be removed
)

var temporaryFiles = regexp.MustCompile(`^` + temporaryFile + `$`)

// temporaries is a directory with a file for each container that must not
// outlive the command that makes it (see api.AnnotationTemporary). A command
// that is killed leaves the files, and the next one removes what they name.
type temporaries struct {
	dir    string // "": nothing is written down
	engine string // address of the engine that the containers are on
}

// temporaryNote is what a file holds. A container has no id before it is made, and
// its command may be killed right after.
type temporaryNote struct {
	Engine string `json:"engine"`
	Pod    string `json:"pod"`
	Name   string `json:"name"`
}

// CreateContainer notes containers that must not outlive their command.
func (s *criService) CreateContainer(ctx context.Context, r *runtimeapi.CreateContainerRequest) (*runtimeapi.CreateContainerResponse, error) {
	if _, temporary := r.GetConfig().GetAnnotations()[api.AnnotationTemporary]; temporary {
		if err := s.temporaries.note(r.GetPodSandboxId(), r.GetConfig().GetMetadata().GetName()); err != nil {
			return nil, fmt.Errorf("note a temporary container: %w", err)
		}
	}
	return s.containers.CreateContainer(ctx, r)
}

func (t temporaries) note(pod, name string) error {
	if t.dir == "" {
		return nil
	}
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

// errElsewhere is about containers that only another engine knows.
var errElsewhere = errors.New("made on another engine")

// containerLister is what removing needs of the container service.
type containerLister interface {
	ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error)
	RemoveContainer(context.Context, *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error)
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
	ctx, cancel := context.WithTimeout(ctx, temporaryTime)
	defer cancel()
	for _, file := range files {
		if !temporaryFiles.MatchString(file.Name()) {
			continue
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
		return errElsewhere
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
