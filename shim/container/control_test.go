package container

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/google/go-cmp/cmp"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/api"
	"github.com/crishim/crishim/internal/kube"
)

// TestTemporaryContainersAreNoted checks that temporary containers, including copies, are recorded before they are
// created, and that they are removed with their owner.
func TestTemporaryContainersAreNoted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	noted := 0
	f.Service = New(Options{Engine: f.engine, Owner: "shim-1", NoteTemporary: func() error {
		noted++
		return nil
	}})
	id := f.create(t, func(c *runtimeapi.ContainerConfig) { c.Metadata.Name = "stays" })
	f.create(t, func(c *runtimeapi.ContainerConfig) {
		c.Metadata.Name, c.Annotations = "goes", map[string]string{api.AnnotationTemporary: "true"}
	})
	for name, temporary := range map[string]bool{"copy-stays": false, "copy-goes": true} {
		request := &api.CopyContainerRequest{ContainerId: id, PodSandboxId: f.sandbox, Name: name, Command: []string{"sh"}, Temporary: temporary}
		if _, err := f.Copy(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if noted != 2 {
		t.Errorf("got %d notes, want 2", noted)
	}
	for _, c := range []struct {
		owner string
		want  []string
	}{
		{"", []string{"copy-goes", "copy-stays", "goes", "stays"}},
		{"shim-2", []string{"copy-goes", "copy-stays", "goes", "stays"}},
		{"shim-1", []string{"copy-stays", "stays"}},
	} {
		if err := f.RemoveOwned(t.Context(), c.owner); err != nil {
			t.Error(err)
		}
		list, err := f.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var left []string
		for _, made := range list.GetContainers() {
			left = append(left, made.GetMetadata().GetName())
		}
		slices.Sort(left)
		if !slices.Equal(left, c.want) {
			t.Errorf("without the containers of %q: got %v, want %v", c.owner, left, c.want)
		}
	}
}

// TestCopyWithAnImageThatCannotBeInspected: otherwise the copy would get the environment of the original's image.
func TestCopyWithAnImageThatCannotBeInspected(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, nil)
	calls := 0
	f.engine.Fail("ImageInspect", func(context.Context) error {
		if calls++; calls == 1 { // the copy's image
			return nil
		}
		return errdefs.ErrUnavailable
	})
	_, err := f.Copy(t.Context(), &api.CopyContainerRequest{ContainerId: id, PodSandboxId: f.sandbox, Name: "copy", Command: []string{"sh"}, Image: testImage})
	if !errdefs.IsUnavailable(err) {
		t.Errorf("got %v, want the engine's error", err)
	}
}

// TestDefaultsOfAnImageAreNotCopied: another image does not have the users and directories of the original's.
func TestDefaultsOfAnImageAreNotCopied(t *testing.T) {
	t.Parallel()
	img := &ocispec.ImageConfig{
		User: "nginx", WorkingDir: "/app", StopSignal: "SIGQUIT", Env: []string{"PATH=/app"}, Volumes: map[string]struct{}{"/cache": {}},
	}
	config := &container.Config{
		User: "nginx", WorkingDir: "/app", StopSignal: "SIGQUIT", Env: []string{"PATH=/app", "A=b"}, Volumes: map[string]struct{}{"/cache": {}},
	}
	dropDefaults(config, img)
	if diff := cmp.Diff(&container.Config{Env: []string{"A=b"}, Volumes: map[string]struct{}{}}, config); diff != "" {
		t.Error(diff)
	}
	for _, user := range []string{"1000", "1000:1000"} {
		config := &container.Config{User: user}
		if dropDefaults(config, &ocispec.ImageConfig{User: user}); config.User != user {
			t.Errorf("got user %q, want %q", config.User, user)
		}
	}
}

func TestNamesThatNoCopyHas(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, func(*runtimeapi.ContainerConfig) {})
	for _, name := range []string{"", "../copy", "a/b", "a\x00b"} {
		_, err := f.Copy(t.Context(), &api.CopyContainerRequest{ContainerId: id, PodSandboxId: f.sandbox, Name: name, Command: []string{"sh"}})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, want invalid argument", name, err)
		}
	}
}

// TestPausedIsNoted checks the annotation for paused containers in lists and statuses. Requests cannot set it.
func TestPausedIsNoted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, func(c *runtimeapi.ContainerConfig) {
		c.Annotations = map[string]string{kube.AnnotationPaused: "true", "own": "x"}
	})
	if _, err := f.StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: id}); err != nil {
		t.Fatal(err)
	}
	want := func(paused string) {
		t.Helper()
		list, err := f.ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil || len(list.GetContainers()) != 1 {
			t.Fatalf("got %v, %v", list, err)
		}
		r, err := f.ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: id})
		if err != nil {
			t.Fatal(err)
		}
		for _, got := range []map[string]string{list.GetContainers()[0].GetAnnotations(), r.GetStatus().GetAnnotations()} {
			if got[kube.AnnotationPaused] != paused || got["own"] != "x" {
				t.Errorf("got %v, want paused %q", got, paused)
			}
		}
	}
	want("")
	if err := f.Pause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	want("true")
	if err := f.Unpause(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	want("")
}

// TestPauseOnABusyMachine checks the error of a runtime that gives up freezing a container's cgroup.
func TestPauseOnABusyMachine(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.create(t, nil)
	f.engine.Fail("ContainerPause", func(context.Context) error {
		return fmt.Errorf("Cannot pause container %s: OCI runtime pause failed: unable to freeze: unknown: %w", id, errdefs.ErrInternal)
	})
	err := f.Pause(t.Context(), id)
	if want := "pause container: unable to freeze all its processes in time, as happens on a busy machine; try again: "; !errdefs.IsAborted(err) || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}
