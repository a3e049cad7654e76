package enginetest_test

import (
	"context"
	"crypto/rand"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/crishim/crishim/internal/test/enginetest"
	"github.com/crishim/crishim/shim/pause"
)

type containers interface {
	ContainerCreate(ctx context.Context, config *container.Config, hostConfig *container.HostConfig, networking *network.NetworkingConfig, platform *ocispec.Platform, name string) (container.CreateResponse, error)
	ContainerStart(ctx context.Context, id string, options container.StartOptions) error
	ContainerStop(ctx context.Context, id string, options container.StopOptions) error
	ContainerRemove(ctx context.Context, id string, options container.RemoveOptions) error
	ContainerInspect(ctx context.Context, id string) (container.InspectResponse, error)
	ContainerList(ctx context.Context, options container.ListOptions) ([]container.Summary, error)
}

func TestContractOfMemory(t *testing.T) {
	m := enginetest.NewMemory()
	image, err := pause.Ensure(t.Context(), m, "", "x86_64")
	if err != nil {
		t.Fatal(err)
	}
	testContract(t, m, image.ID)
}

func TestContractOfTheRealEngine(t *testing.T) {
	engine := enginetest.Require(t)
	image, err := pause.Ensure(t.Context(), engine, "", runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	testContract(t, engine, image.ID)
}

// testContract checks the shim's assumptions about an engine. It runs with a real engine and with Memory, to keep
// Memory accurate. The image must have a program that runs until it is stopped.
func testContract(t *testing.T, e containers, image string) {
	label, name := "crishim.test="+rand.Text(), "k8s_contract_"+rand.Text()
	key, value, _ := strings.Cut(label, "=")
	config := &container.Config{Image: image, Labels: map[string]string{key: value}}
	made, err := e.ContainerCreate(t.Context(), config, &container.HostConfig{}, nil, nil, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
		defer cancel()
		e.ContainerRemove(ctx, made.ID, container.RemoveOptions{Force: true})
	})
	c := contract{t: t, e: e, id: made.ID, name: name, label: label, config: config}
	t.Run("a name that is taken is a conflict that names the holder", c.conflict)
	t.Run("a new container is created, found by name and by prefix", c.fresh)
	t.Run("start and stop may be repeated", c.lifeCycle)
	t.Run("lists follow the filters", c.filters)
	t.Run("what is not there is not found", c.absent)
}

type contract struct {
	t               *testing.T
	e               containers
	id, name, label string
	config          *container.Config
}

func (c contract) conflict(t *testing.T) {
	_, err := c.e.ContainerCreate(t.Context(), c.config, &container.HostConfig{}, nil, nil, c.name)
	if !errdefs.IsConflict(err) || !strings.Contains(err.Error(), c.id) {
		t.Errorf("got %v, want a conflict with %s", err, c.id)
	}
}

func (c contract) fresh(t *testing.T) {
	for _, ref := range []string{c.id, c.name, c.id[:12]} {
		got, err := c.e.ContainerInspect(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		if got.ID != c.id || got.Name != "/"+c.name || got.State.Status != container.StateCreated {
			t.Errorf("by %s: got %s %s %s", ref, got.ID, got.Name, got.State.Status)
		}
	}
}

func (c contract) lifeCycle(t *testing.T) {
	for range 2 {
		if err := c.e.ContainerStart(t.Context(), c.id, container.StartOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := c.e.ContainerInspect(t.Context(), c.id); err != nil || !got.State.Running || got.State.Pid == 0 {
		t.Errorf("after the start: got %+v, %v", got.State, err)
	}
	if err := c.e.ContainerRemove(t.Context(), c.id, container.RemoveOptions{}); !errdefs.IsConflict(err) {
		t.Errorf("remove while running: got %v, want a conflict", err)
	}
	at := 0
	for range 2 {
		if err := c.e.ContainerStop(t.Context(), c.id, container.StopOptions{Timeout: &at}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := c.e.ContainerInspect(t.Context(), c.id)
	if err != nil || got.State.Running || got.State.Status != container.StateExited || strings.HasPrefix(got.State.FinishedAt, "0001") {
		t.Errorf("after the stop: got %+v, %v", got.State, err)
	}
}

func (c contract) filters(t *testing.T) {
	for name, f := range map[string]struct {
		args filters.Args
		all  bool
		want int
	}{
		"only running ones without all": {filters.NewArgs(filters.Arg("label", c.label)), false, 0},
		"all":                           {filters.NewArgs(filters.Arg("label", c.label)), true, 1},
		"an id prefix":                  {filters.NewArgs(filters.Arg("label", c.label), filters.Arg("id", c.id[:10])), true, 1},
		"two labels, one of them wrong": {filters.NewArgs(filters.Arg("label", c.label), filters.Arg("label", "crishim.no=1")), true, 0},
	} {
		got, err := c.e.ContainerList(t.Context(), container.ListOptions{All: f.all, Filters: f.args})
		if err != nil || len(got) != f.want {
			t.Errorf("%s: got %d containers and %v, want %d", name, len(got), err, f.want)
		}
	}
}

func (c contract) absent(t *testing.T) {
	id := strings.Repeat("f", 64)
	_, inspect := c.e.ContainerInspect(t.Context(), id)
	for method, err := range map[string]error{
		"inspect": inspect,
		"start":   c.e.ContainerStart(t.Context(), id, container.StartOptions{}),
		"stop":    c.e.ContainerStop(t.Context(), id, container.StopOptions{}),
		"remove":  c.e.ContainerRemove(t.Context(), id, container.RemoveOptions{}),
	} {
		if !errdefs.IsNotFound(err) {
			t.Errorf("%s: got %v, want not found", method, err)
		}
	}
}
