package pod

import (
	"strconv"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestContainerHash(t *testing.T) {
	t.Parallel()
	c := &v1.Container{Name: "a", Image: "busybox:1"}
	h := ContainerHash(c)
	c.Command = []string{"sleep"}
	if ContainerHash(c) != h {
		t.Error("a command changed the hash: the kubelet restarts for a new image only")
	}
	c.Image = "busybox:2"
	if ContainerHash(c) == h {
		t.Error("a new image did not change the hash")
	}
	if back, err := strconv.ParseUint(FormatHash(h), 16, 64); err != nil || back != h {
		t.Errorf("got %x, %v, want %x", back, err, h)
	}
}

func TestUID(t *testing.T) {
	t.Parallel()
	base := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", Annotations: map[string]string{"a": "b"}},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox:1"}}},
	}
	uid := func(change func(*v1.Pod)) string {
		p := base.DeepCopy()
		if change != nil {
			change(p)
		}
		u, err := UID(p)
		if err != nil {
			t.Fatal(err)
		}
		return string(u)
	}
	first := uid(nil)
	same := map[string]func(*v1.Pod){
		"image":          func(p *v1.Pod) { p.Spec.Containers[0].Image = "busybox:2" },
		"own annotation": func(p *v1.Pod) { p.Annotations[ConfigSeenAnnotation] = "now" },
		"status":         func(p *v1.Pod) { p.Status.Phase = v1.PodFailed },
		"ephemeral":      func(p *v1.Pod) { p.Spec.EphemeralContainers = make([]v1.EphemeralContainer, 1) },
	}
	for name, change := range same {
		if uid(change) != first {
			t.Errorf("%s made another pod", name)
		}
	}
	other := map[string]func(*v1.Pod){
		"command":    func(p *v1.Pod) { p.Spec.Containers[0].Command = []string{"sleep"} },
		"name":       func(p *v1.Pod) { p.Name = "web2" },
		"namespace":  func(p *v1.Pod) { p.Namespace = "team" },
		"label":      func(p *v1.Pod) { p.Labels = map[string]string{"a": "b"} },
		"annotation": func(p *v1.Pod) { p.Annotations["a"] = "c" },
		"own uid":    func(p *v1.Pod) { p.UID = "x" },
	}
	for name, change := range other {
		if uid(change) == first {
			t.Errorf("%s made no other pod", name)
		}
	}
}
