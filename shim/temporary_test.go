package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
)

// somePod has containers that can be listed and removed.
type somePod struct {
	containers []*runtimeapi.Container
	removed    []string
	broken     bool
}

func (p *somePod) ListContainers(context.Context, *runtimeapi.ListContainersRequest) (*runtimeapi.ListContainersResponse, error) {
	if p.broken {
		return nil, errors.New("the engine is away")
	}
	return &runtimeapi.ListContainersResponse{Containers: p.containers}, nil
}

func (p *somePod) RemoveContainer(_ context.Context, r *runtimeapi.RemoveContainerRequest) (*runtimeapi.RemoveContainerResponse, error) {
	p.removed = append(p.removed, r.GetContainerId())
	return nil, nil
}

func TestSweepOfTemporaryContainers(t *testing.T) {
	made := func(name string, temporary bool) *runtimeapi.Container {
		c := &runtimeapi.Container{Id: "id-of-" + name, Metadata: &runtimeapi.ContainerMetadata{Name: name}}
		if temporary {
			c.Annotations = map[string]string{api.AnnotationTemporary: "true"}
		}
		return c
	}
	pod := &somePod{containers: []*runtimeapi.Container{made("debug-a", true), made("debug-b", true), made("debug-c", false)}}
	base := shortDir(t)
	dir := deadDir(t, base)
	left := temporaries{dir: filepath.Join(dir, temporaryName), engine: "unix:///here"}
	if err := errors.Join(left.note("pod", "debug-a"), left.note("pod", "debug-c"), left.note("pod", "never-made")); err != nil {
		t.Fatal(err)
	}
	there := func() bool { _, err := os.Stat(dir); return err == nil }

	sweep(t.Context(), base, "unix:///elsewhere", nil, pod)
	if !there() || pod.removed != nil {
		t.Errorf("with another engine: got %v removed, directory there: %v", pod.removed, there())
	}
	pod.broken = true
	sweep(t.Context(), base, "unix:///here", nil, pod)
	if !there() {
		t.Error("with an engine that is away: the directory is gone")
	}
	pod.broken = false
	sweep(t.Context(), base, "unix:///here", nil, pod)
	if diff := cmp.Diff([]string{"id-of-debug-a"}, pod.removed); diff != "" || there() {
		t.Errorf("removed (-want +got):\n%s\ndirectory there: %v", diff, there())
	}
}
