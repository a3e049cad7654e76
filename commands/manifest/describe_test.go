package manifest

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	v1 "k8s.io/api/core/v1"
)

// TestDescribedContainer: one that waits has its reason for a state and its end for the last
// one; a mounted image is named.
func TestDescribedContainer(t *testing.T) {
	t.Parallel()
	p := &page{now: time.Unix(100, 0)}
	status := &pod.ContainerStatus{
		Name: "a", ID: "id", State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: 3, FinishedAt: time.Unix(90, 0), Reason: "Error",
		Mounts: []*runtimeapi.Mount{
			{ContainerPath: "/data", HostPath: "/srv"},
			{ContainerPath: "/model", Image: &runtimeapi.ImageSpec{Image: "model:1"}, Readonly: true},
		},
	}
	d := &kuberuntime.Description{
		Status:  &pod.Status{Containers: []*pod.ContainerStatus{status}},
		Waiting: map[string]v1.ContainerStateWaiting{"a": {Reason: "CrashLoopBackOff", Message: "back-off 10s"}},
	}
	p.container(d, plan.ContainerView{Container: &v1.Container{Name: "a", Image: "busybox:1"}, Status: status})
	for _, want := range []string{
		"State:       waiting, CrashLoopBackOff: back-off 10s\n",
		"Last state:  exited with status 3 10s ago, Error\n",
		"Mount:       /data from /srv (rw)\n",
		"Mount:       /model from image model:1 (ro)\n",
	} {
		if !strings.Contains(p.text.String(), want) {
			t.Errorf("no %q in\n%s", want, p.text.String())
		}
	}
}

// TestRepeatedEvents: what happens again and again is one line, where it happened last.
func TestRepeatedEvents(t *testing.T) {
	t.Parallel()
	event := func(at int64, message string) kuberuntime.Event {
		return kuberuntime.Event{Time: time.Unix(at, 0), Container: "a", Warning: true, Reason: "Unhealthy", Message: message}
	}
	p := &page{now: time.Unix(100, 0)}
	p.events([]kuberuntime.Event{
		event(60, "readiness probe failed: refused"), event(70, "liveness probe failed: timeout"),
		event(80, "readiness probe failed: refused"), event(90, "readiness probe failed: again"),
	})
	want := "Events:\n" +
		"  30s      Warning  Unhealthy            a liveness probe failed: timeout\n" +
		"  10s      Warning  Unhealthy (x3)       a readiness probe failed: again\n"
	if got := p.text.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestStatusLinesTellChanges(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	env := (&cli.Env{Out: &out}).Fresh(false)
	say := statusLines(env)
	for _, e := range []kuberuntime.Event{
		{Pod: "p", Container: "a", Warning: true, Message: "refused"},
		{Pod: "p", Container: "b", Warning: true, Message: "refused"},
		{Pod: "p", Container: "a", Warning: true, Message: "refused"},
		{Pod: "p", Container: "a", Message: "started"},
		{Pod: "p", Container: "a", Message: "started"},
		{Pod: "p", Container: "a", Warning: true, Message: "refused"},
	} {
		say(e)
	}
	if got := strings.Count(out.String(), "\n"); got != 5 || strings.Count(out.String(), "/a: warning: refused") != 2 {
		t.Errorf("got\n%s", out.String())
	}
}
