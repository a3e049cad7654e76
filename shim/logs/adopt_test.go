package logs

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"

	"github.com/crishim/crishim/shim/state"
)

// stale is an engine whose list has a container that is gone when it is asked about.
type stale struct {
	Engine
	labels map[string]string
}

func (e stale) ContainerList(context.Context, container.ListOptions) ([]container.Summary, error) {
	return []container.Summary{{ID: "gone", State: container.StateRunning, Labels: e.labels}}, nil
}

func (stale) ContainerInspect(context.Context, string) (container.InspectResponse, error) {
	return container.InspectResponse{}, errdefs.ErrNotFound
}

// A container that is removed while the service starts has no log any more, and its
// directory, which may have been removed as well, is not made again.
func TestNothingIsMadeForAContainerThatIsGone(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "pod")
	s := New(Options{Engine: stale{labels: state.EncodeContainer(state.Container{LogDir: dir, LogPath: filepath.Join(dir, "main.log")})}, Write: true})
	defer s.Close()
	if _, err := s.adopt(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory is there: %v", err)
	}
}
