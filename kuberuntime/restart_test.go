package kuberuntime

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
)

// TestUpFollowsRestartRules: in a pod with restart policy Never, an exit code in a rule restarts the container. Another
// exit code ends it.
func TestUpFollowsRestartRules(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	p, set := parse(t, `
  restartPolicy: Never
  containers:
  - name: a
    image: "busybox:1"
    restartPolicy: Never
    restartPolicyRules: [{action: Restart, exitCodes: {operator: In, values: [42]}}]
`)
	ctx := deadline(t)
	done := make(chan error, 1)
	go func() {
		view, err := f.Up(ctx, p, set, true)
		if err == nil && view.Phase != v1.PodSucceeded {
			t.Errorf("got the phase %s", view.Phase)
		}
		done <- err
	}()
	first := waitRunning(ctx, t, f, p, "a")
	f.stub.Exit(first, 42)
	second := waitRunning(ctx, t, f, p, "a")
	if second == first || f.status(t, p).Container("a").RestartCount != 1 {
		t.Errorf("the container was not restarted once: %+v", f.status(t, p).Container("a"))
	}
	f.stub.Exit(second, 0)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestNewImageInAJob: a new image restarts its container, and neither the other containers nor the count of failures
// change, also if the image could not be pulled at first.
func TestNewImageInAJob(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	set, err := manifest.Read(manifest.Options{}, strings.NewReader(`{apiVersion: batch/v1, kind: Job, metadata: {name: pi}, spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never,
		containers: [{name: a, image: "busybox:1"}, {name: b, image: "busybox:1"}]}}}}`), "-")
	if err != nil {
		t.Fatal(err)
	}
	p := set.Pods[0].Pod
	p.UID = "u1"
	ctx := deadline(t)
	if _, err := f.Up(ctx, p, set, false); err != nil {
		t.Fatal(err)
	}
	before := f.status(t, p).Container("b").ID
	for _, image := range []string{"busybox:2", "missing:1", "busybox:2", "missing:1", "busybox:1", "busybox:2"} {
		f = f.next(t)
		p.Spec.Containers[0].Image, p.Spec.Containers[0].ImagePullPolicy = image, v1.PullNever
		if _, err := f.Up(ctx, p, set, false); (err == nil) != (image != "missing:1") {
			t.Fatalf("%s: got %v", image, err)
		}
	}
	s := f.status(t, p)
	if a := s.Container("a"); !a.Running() || a.Image != "busybox:2" || a.RestartCount != 0 || s.Container("b").ID != before {
		t.Errorf("got %+v and %+v", a, s.Container("b"))
	}
}
