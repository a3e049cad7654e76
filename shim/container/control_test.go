package container

import (
	"slices"
	"testing"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/shim/state"
)

// TestTemporaryContainersAreNoted before they are made, also those that are copies.
func TestTemporaryContainersAreNoted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	var noted []string
	f.Service = New(Options{Engine: f.engine, NoteTemporary: func(pod, name string) error {
		if pod != f.sandbox {
			t.Errorf("%s is noted in %s", name, pod)
		}
		noted = append(noted, name)
		return nil
	}})
	id := f.create(t, func(c *runtimeapi.ContainerConfig) { c.Metadata.Name = "stays" })
	f.create(t, func(c *runtimeapi.ContainerConfig) {
		c.Metadata.Name, c.Annotations = "goes", map[string]string{api.AnnotationTemporary: "true"}
	})
	for name, temporary := range map[string]bool{"copy-stays": false, "copy-goes": true} {
		request := &api.CopyContainerRequest{ContainerId: id, Name: name, Command: []string{"sh"}, Temporary: temporary}
		if _, err := f.Copy(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"goes", "copy-goes"}; !slices.Equal(noted, want) {
		t.Errorf("got %v noted, want %v", noted, want)
	}
}

// TestCopyStaysInTheLogDirectory: a copy's log has its name, which is no path.
func TestCopyStaysInTheLogDirectory(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	request := f.request(func(c *runtimeapi.ContainerConfig) { c.LogPath = "app.log" })
	request.SandboxConfig.LogDirectory = t.TempDir()
	made, err := f.CreateContainer(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	id, err := f.Copy(t.Context(), &api.CopyContainerRequest{ContainerId: made.GetContainerId(), Name: "copy", Command: []string{"sh"}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := f.inspect(t, id).Config.Labels[state.LabelLogPath], request.SandboxConfig.LogDirectory+"/copy.0.log"; got != want {
		t.Errorf("the log is at %s, want %s", got, want)
	}
	for _, name := range []string{"../copy", "a/b", "a\x00b"} {
		_, err := f.Copy(t.Context(), &api.CopyContainerRequest{ContainerId: made.GetContainerId(), Name: name, Command: []string{"sh"}})
		if !errdefs.IsInvalidArgument(err) {
			t.Errorf("%q: got %v, want invalid argument", name, err)
		}
	}
}

// TestPausedIsNoted in lists and status: CRI has no state for it. Nobody else can note it.
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
