package logs

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/state"
)

// stale is an engine whose list contains a container that is gone when inspected.
type stale struct {
	Engine
	labels map[string]string
}

func (e stale) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	return []container.Summary{{ID: "gone", State: container.StateRunning, Names: []string{"/k8s_main_p_n_u_0"}, Labels: e.labels}}, nil
}

func (stale) ContainerInspect(context.Context, string) (container.InspectResponse, error) {
	return container.InspectResponse{}, errdefs.ErrNotFound
}

// foreign is an engine with a container outside pods whose image has the labels of a pod container.
type foreign struct {
	Engine
	labels map[string]string
}

func (e foreign) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	return []container.Summary{{ID: "foreign", Names: []string{"/web"}, State: container.StateRunning, Labels: e.labels}}, nil
}

func (e foreign) ContainerInspect(_ context.Context, id string) (container.InspectResponse, error) {
	return container.InspectResponse{
		ContainerJSONBase: &container.ContainerJSONBase{ID: id, Name: "/web", State: &container.State{Running: true}}, Config: &container.Config{Labels: e.labels},
	}, nil
}

func (foreign) ContainerLogs(context.Context, string, container.LogsOptions) (io.ReadCloser, error) {
	return nil, errdefs.ErrUnavailable
}

// Labels of an image cannot choose the path of a log.
func TestNoLogIsWrittenWhereAnImageWantsIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := New(Options{Engine: foreign{labels: state.EncodeContainer(state.Container{SandboxID: "pod", LogDir: dir, LogPath: filepath.Join(dir, "app", "0.log")}, nil)}, Write: true})
	defer s.Close()
	if _, err := s.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ReopenContainerLog(t.Context(), &runtimeapi.ReopenContainerLogRequest{ContainerId: "foreign"}); !errdefs.IsNotFound(err) {
		t.Errorf("reopen: got %v", err)
	}
	if made, err := os.ReadDir(dir); err != nil || len(made) != 0 {
		t.Errorf("got %v, %v", made, err)
	}
}

// If a container is removed while the service starts, neither its log nor its directory is created again.
func TestNothingIsMadeForAContainerThatIsGone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pod")
	s := New(Options{Engine: stale{labels: state.EncodeContainer(state.Container{SandboxID: "pod", LogDir: dir, LogPath: filepath.Join(dir, "main.log")}, nil)}, Write: true})
	defer s.Close()
	if _, err := s.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is there: %v", err)
	}
}

// paused is an engine with a paused container.
type paused struct{ foreign }

func (e paused) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	return []container.Summary{{ID: "paused", Names: []string{"/k8s_main_p_n_u_0"}, State: container.StatePaused, Labels: e.labels}}, nil
}

// TestPausedContainersHaveNotEnded: their logs go on, so nothing waits for the end of them.
func TestPausedContainersHaveNotEnded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := New(Options{Engine: paused{foreign{labels: state.EncodeContainer(state.Container{SandboxID: "pod", LogDir: dir, LogPath: filepath.Join(dir, "main.log")}, nil)}}, Write: true})
	defer s.Close()
	ended, err := s.adopt(t.Context())
	if err != nil || len(ended) != 0 {
		t.Errorf("got %d ended containers, %v", len(ended), err)
	}
	if _, err := os.Stat(filepath.Join(dir, "main.log")); err != nil {
		t.Error(err)
	}
}
