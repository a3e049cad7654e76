package kube

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestIsDoneInit(t *testing.T) {
	t.Parallel()
	created := func(at ...int64) map[string]*runtimeapi.Container {
		newest := map[string]*runtimeapi.Container{"init": {Id: "init", CreatedAt: 1}}
		for i, at := range at {
			id := string(rune('a' + i))
			newest[id] = &runtimeapi.Container{Id: id, CreatedAt: at}
		}
		return newest
	}
	const running, exited = runtimeapi.ContainerState_CONTAINER_RUNNING, runtimeapi.ContainerState_CONTAINER_EXITED
	for _, test := range []struct {
		name   string
		status *runtimeapi.ContainerStatus
		newest map[string]*runtimeapi.Container
		want   bool
	}{
		{"no status", nil, created(9), false},
		{"another was created later", &runtimeapi.ContainerStatus{Id: "init", State: exited, FinishedAt: 5}, created(2, 9), true},
		{"at once", &runtimeapi.ContainerStatus{Id: "init", State: exited, FinishedAt: 5}, created(5), true},
		{"all others were created before", &runtimeapi.ContainerStatus{Id: "init", State: exited, FinishedAt: 5}, created(2, 3), false},
		{"it is alone", &runtimeapi.ContainerStatus{Id: "init", State: exited, FinishedAt: 1}, created(), false},
		{"it runs", &runtimeapi.ContainerStatus{Id: "init", State: running}, created(9), false},
		{"it has failed", &runtimeapi.ContainerStatus{Id: "init", State: exited, FinishedAt: 5, ExitCode: 1}, created(9), false},
		{"its end is not known", &runtimeapi.ContainerStatus{Id: "init", State: exited}, created(9), false},
	} {
		if got := IsDoneInit(test.status, test.newest); got != test.want {
			t.Errorf("%s: got %t, want %t", test.name, got, test.want)
		}
	}
}
