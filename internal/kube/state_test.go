package kube

import (
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestPodState checks that states are in kubectl's words and do not depend on the caller.
func TestPodState(t *testing.T) {
	t.Parallel()
	runs := Container{State: runtimeapi.ContainerState_CONTAINER_RUNNING, Ready: true}
	ended := func(code int32, reason string) Container {
		return Container{State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: code, Reason: reason}
	}
	failed, done, killed := ended(1, "Error"), ended(0, "Completed"), ended(137, "Error")
	waits := func(why string) Container { return Container{Missing: true, Waits: why} }
	init := func(c Container) Container { c.Init = true; return c }
	sidecar := func(c Container) Container { c.Init, c.Sidecar = true, true; return c }
	made, paused := Container{State: runtimeapi.ContainerState_CONTAINER_CREATED}, runs
	paused.Paused = true
	debug := runs
	debug.Ephemeral = true
	crash := failed
	crash.Waits = "CrashLoopBackOff"
	pod := func(c ...Container) Pod { return Pod{Ready: true, Containers: c} }
	over := func(c ...Container) Pod { return Pod{Containers: c} }
	for name, test := range map[string]struct {
		pod  Pod
		want string
	}{
		"runs":                        {pod(runs, runs), Running},
		"one failed":                  {pod(runs, failed), "Error"},
		"one failed without a reason": {pod(ended(3, "")), "ExitCode:3"},
		"out of memory":               {pod(ended(0, "OOMKilled")), "OOMKilled"},
		"done":                        {pod(done), Completed},
		"one is done, one runs":       {pod(done, runs), Running},
		"its init container failed":   {pod(init(failed), waits(PodInitializing)), "Init:Error"},
		"its init container crashes":  {pod(init(crash), waits(PodInitializing)), "Init:CrashLoopBackOff"},
		"its init container runs":     {pod(init(done), init(runs), waits(PodInitializing)), "Init:1/2"},
		"its init container runs next to a sidecar": {pod(sidecar(runs), init(runs), waits(PodInitializing)), "Init:1/2"},
		"its sidecar has not started":               {pod(init(runs), sidecar(waits(PodInitializing)), waits(PodInitializing)), "Init:0/2"},
		"its init container runs again":             {pod(init(runs), done), "Init:0/1"},
		"stopped before its main container":         {over(init(done), sidecar(done), waits("ErrImagePull")), Stopped},
		"its sidecar has ended":                     {over(init(done), sidecar(done)), Completed},
		"its init container is gone":                {pod(init(waits("")), done), Completed},
		"its sidecar failed":                        {pod(sidecar(crash), runs), "CrashLoopBackOff"},
		"a failure before a turn":                   {pod(waits(containerCreating), waits("ErrImagePull")), "ErrImagePull"},
		"being made":                                {pod(waits("")), containerCreating},
		"made, not started":                         {pod(runs, made), created},
		"paused":                                    {pod(paused, runs), Paused},
		"only debugged":                             {pod(done, debug), Completed},
		"empty":                                     {pod(), NoContainers},
		"unknown":                                   {pod(Container{State: runtimeapi.ContainerState_CONTAINER_UNKNOWN}), Unknown},
		"as a whole":                                {Pod{Reason: "DeadlineExceeded", Containers: []Container{killed}}, "DeadlineExceeded"},
		"without a sandbox":                         {Pod{NoSandbox: true, Reason: "FailedCreatePodSandBox", Containers: []Container{waits("")}}, "FailedCreatePodSandBox"},
		"stopped":                                   {over(killed), Stopped},
		"stopped before its containers":             {over(waits("ErrImagePull")), Stopped},
		"stopped with one made":                     {over(made), Stopped},
		"stopped during its initialisation":         {over(init(ended(143, "Error")), waits(PodInitializing)), Stopped},
		"over, done":                                {over(done), Completed},
		"over, failed":                              {over(failed), "Error"},
		"runs without its sandbox":                  {over(runs), sandboxNotReady},
		"gets another sandbox":                      {Pod{Managed: true, Containers: []Container{waits("")}}, containerCreating},
	} {
		if got := test.pod.State().Word; got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
	s := pod(init(done), sidecar(runs), runs, crash, debug).State()
	if s.Ready != 2 || s.Containers != 3 {
		t.Errorf("READY is %d/%d", s.Ready, s.Containers)
	}
}
