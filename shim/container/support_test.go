package container

import (
	"context"
	"testing"

	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/state"
)

// fixture is the service with an in-memory engine that has one image and one sandbox.
type fixture struct {
	*Service
	engine  *enginetest.Memory
	sandbox string
	image   string
}

const testImage = "test.example/app:v1"

func newFixture(t *testing.T) *fixture {
	t.Helper()
	f := &fixture{engine: enginetest.NewMemory()}
	f.image = f.engine.AddImage(testImage)
	f.Service = New(Options{Engine: f.engine})
	f.sandbox = f.addSandbox(t, "web", -998)
	return f
}

// addSandbox creates a running sandbox like the sandbox service.
func (f *fixture) addSandbox(t *testing.T, name string, oomScore int) string {
	t.Helper()
	labels, err := state.EncodeSandbox(state.Sandbox{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name + "-uid"},
		PID:      runtimeapi.NamespaceMode_CONTAINER,
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	host := &container.HostConfig{OomScoreAdj: oomScore, Runtime: "other"}
	made, err := f.engine.ContainerCreate(t.Context(), &container.Config{Image: testImage, Labels: labels}, host, nil, nil, "k8s_POD_"+name)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.engine.ContainerStart(t.Context(), made.ID, container.StartOptions{}); err != nil {
		t.Fatal(err)
	}
	return made.ID
}

func (f *fixture) request(change func(*runtimeapi.ContainerConfig)) *runtimeapi.CreateContainerRequest {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
		Image:    &runtimeapi.ImageSpec{Image: testImage},
	}
	if change != nil {
		change(config)
	}
	return &runtimeapi.CreateContainerRequest{PodSandboxId: f.sandbox, Config: config, SandboxConfig: &runtimeapi.PodSandboxConfig{}}
}

func (f *fixture) create(t *testing.T, change func(*runtimeapi.ContainerConfig)) string {
	t.Helper()
	r, err := f.CreateContainer(t.Context(), f.request(change))
	if err != nil {
		t.Fatal(err)
	}
	return r.GetContainerId()
}

func (f *fixture) start(t *testing.T, id string) {
	t.Helper()
	if _, err := f.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
}

func (f *fixture) inspect(t *testing.T, id string) container.InspectResponse {
	t.Helper()
	c, err := f.engine.ContainerInspect(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func failing(err error) enginetest.Fault { return func(context.Context) error { return err } }
