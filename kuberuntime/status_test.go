package kuberuntime

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// A pod from runp may have no labels. GetPods lists it, and it can be described and removed.
func TestStatusOfAPodWithoutLabels(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.stub.AddPod("default", "bare", func(c *runtimeapi.PodSandboxConfig) { c.Labels = nil })
	f.stub.AddContainer(id, "a", func(c *runtimeapi.ContainerConfig) { c.Labels = nil })
	f.stub.AddContainer(f.stub.AddPod("default", "other"), "b")
	pods, err := f.GetPods(t.Context(), true)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if p.Name != "bare" {
			continue
		}
		status, err := f.StatusOf(t.Context(), p)
		if err != nil || len(status.Sandboxes) != 1 || len(status.Containers) != 1 || status.Containers[0].Name != "a" {
			t.Fatalf("got %+v, %v", status, err)
		}
		if err := f.Remove(deadline(t), nil, status, nil); err != nil {
			t.Fatal(err)
		}
	}
	if sandboxes, containers := f.stub.Left(); sandboxes != 1 || containers != 1 {
		t.Errorf("left are %d sandboxes and %d containers, want the other pod's", sandboxes, containers)
	}
}

// Without the restart count annotation, as in a pod from runp, the attempt number is the number of restarts.
func TestRestartsOfAContainerWithoutAnnotations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		attempt     uint32
		annotations map[string]string
		want        int
	}{
		{0, nil, 0},
		{3, nil, 3},
		{0, map[string]string{pod.RestartCountAnnotation: "2"}, 2},
		{3, map[string]string{pod.RestartCountAnnotation: "many"}, 3},
	} {
		c := &runtimeapi.ContainerStatus{Metadata: &runtimeapi.ContainerMetadata{Name: "a", Attempt: tt.attempt}, Annotations: tt.annotations}
		if got := containerStatus("", c).RestartCount; got != tt.want {
			t.Errorf("attempt %d with %v: %d restarts, want %d", tt.attempt, tt.annotations, got, tt.want)
		}
	}
}
