package kuberuntime

import (
	"testing"

	v1 "k8s.io/api/core/v1"
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
