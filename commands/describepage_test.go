package commands

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime"
	v1 "github.com/crishim/crishim/kuberuntime/corev1"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
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
