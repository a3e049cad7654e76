package kuberuntime

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A pod of runp may have no label: what GetPods finds can be described and removed.
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
		status, err := f.GetPodStatus(t.Context(), p.UID, p.Name, p.Namespace)
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
