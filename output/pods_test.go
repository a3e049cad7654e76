package output

import (
	"bytes"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
)

// The columns READY and STATE show the managed state.
func TestKeptPods(t *testing.T) {
	now := time.Unix(1000, 0)
	running := func(id string) *runtimeapi.Container {
		return &runtimeapi.Container{Id: id, Metadata: &runtimeapi.ContainerMetadata{Name: id}, State: runtimeapi.ContainerState_CONTAINER_RUNNING}
	}
	paused := running("a")
	paused.Annotations = map[string]string{kube.AnnotationPaused: "true"}
	debug := running("debug-x")
	debug.Labels = map[string]string{kube.LabelDebug: "a"}
	missing := func(name string, c kube.Container) ManagedContainer {
		return ManagedContainer{Name: name, Container: c}
	}
	pulling, turn := kube.Container{Waits: "ImagePullBackOff", Next: now.Add(8 * time.Second)}, kube.Container{Waits: "PodInitializing"}
	known := func(c ...ManagedContainer) ManagedPod { return ManagedPod{Managed: true, Containers: c} }
	unready := func(id string) ManagedContainer { return ManagedContainer{Name: "b", ID: id, Probed: true} }
	exited := map[string]*runtimeapi.ContainerStatusResponse{"a": {Status: &runtimeapi.ContainerStatus{Id: "a", State: runtimeapi.ContainerState_CONTAINER_EXITED}}}
	for _, test := range []struct {
		name    string
		members []*runtimeapi.Container
		stopped bool
		kept    ManagedPod
		want    string
	}{
		{name: "nobody keeps it", members: []*runtimeapi.Container{running("a")}, want: "1/1   Running\n"},
		{name: "ready", members: []*runtimeapi.Container{running("a"), running("b")}, want: "2/2   Running\n"},
		{name: "a probe fails", members: []*runtimeapi.Container{running("a"), running("b")}, kept: known(unready("b")), want: "1/2   Running\n"},
		{name: "nobody probes it any more", members: []*runtimeapi.Container{running("a"), running("b")}, kept: ManagedPod{Containers: []ManagedContainer{unready("b")}}, want: "?/2   Running\n"},
		{name: "the attempt that was probed is not there any more", members: []*runtimeapi.Container{running("a")}, kept: ManagedPod{Containers: []ManagedContainer{unready("b")}}, want: "1/1   Running\n"},
		{name: "no image", kept: known(missing("a", pulling)), want: "0/1   ImagePullBackOff, next in 8s\n"},
		{name: "one image of two", members: []*runtimeapi.Container{running("a")}, kept: known(missing("b", pulling)), want: "1/2   ImagePullBackOff, next in 8s\n"},
		{name: "initialises", members: []*runtimeapi.Container{running("i")}, kept: known(ManagedContainer{Name: "i", ID: "i", Container: kube.Container{Init: true}}, missing("a", turn)), want: "0/1   Init:0/1\n"},
		{name: "a failure before a turn", kept: known(missing("a", turn), missing("b", pulling), missing("c", turn)), want: "0/3   ImagePullBackOff, next in 8s\n"},
		{name: "made since", members: []*runtimeapi.Container{running("a")}, kept: known(missing("a", pulling)), want: "1/1   Running\n"},
		{name: "one paused", members: []*runtimeapi.Container{paused, running("b")}, want: "1/2   Paused\n"},
		{name: "debugged", members: []*runtimeapi.Container{running("a"), debug}, want: "1/1   Running\n"},
		{name: "debugged after its end", members: []*runtimeapi.Container{{Id: "a", Metadata: &runtimeapi.ContainerMetadata{Name: "a"}, State: runtimeapi.ContainerState_CONTAINER_EXITED}, debug}, want: "0/1   Completed\n"},
		{name: "stopped", stopped: true, kept: ManagedPod{Containers: []ManagedContainer{missing("a", pulling)}}, want: "0/0   Stopped\n"},
		{name: "past its deadline", stopped: true, kept: ManagedPod{Reason: "DeadlineExceeded"}, want: "0/0   DeadlineExceeded\n"},
		{name: "without a sandbox", stopped: true, kept: ManagedPod{NoSandbox: true, Reason: "FailedMount", Containers: []ManagedContainer{missing("a", kube.Container{})}}, want: "0/1   FailedMount\n"},
	} {
		p := &runtimeapi.PodSandbox{Id: "p"}
		if test.stopped {
			p.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
		var out bytes.Buffer
		err := Pods(&out, &runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{p}}, Options{
			Now: now, Columns: []string{"ready", "state"}, NoHeaders: true,
			Members: map[string][]*runtimeapi.Container{"p": test.members}, Statuses: exited, Managed: map[string]ManagedPod{"p": test.kept},
		})
		if err != nil || out.String() != test.want {
			t.Errorf("%s: %q, %v; want %q", test.name, out.String(), err, test.want)
		}
	}
}

// A command that could not be started has no exit status, whatever the runtime reports.
func TestStateOfWhatCouldNotStart(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_000_000, 0)
	c := &runtimeapi.Container{Id: "a", State: runtimeapi.ContainerState_CONTAINER_EXITED}
	for _, reason := range []string{"StartError", "ContainerCannotRun"} {
		o := Options{Now: now, Statuses: map[string]*runtimeapi.ContainerStatusResponse{"a": {Status: &runtimeapi.ContainerStatus{
			State: c.State, ExitCode: 127, Reason: reason, FinishedAt: now.Add(-time.Minute).UnixNano(),
		}}}}
		if got, want := containerState(c, o), reason+" 60s ago"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// CRI has no paused state: the container is running. Tables for people show Paused.
func TestStateOfPaused(t *testing.T) {
	t.Parallel()
	c := &runtimeapi.Container{State: runtimeapi.ContainerState_CONTAINER_RUNNING, Annotations: map[string]string{kube.AnnotationPaused: "true"}}
	if got := containerState(c, Options{}) + " " + containerState(c, Options{Crictl: true}); got != "Paused Running" {
		t.Errorf("got %q", got)
	}
	c.State = runtimeapi.ContainerState_CONTAINER_EXITED
	if got := containerState(c, Options{}); got != "Exited" {
		t.Errorf("after its end: got %q", got)
	}
}

// crictl shows the image in the container's record, not the reference in its configuration.
func TestImageOfCrictl(t *testing.T) {
	t.Parallel()
	c := containers.GetContainers()[0]
	for want, o := range map[string]Options{"busybox:1.35": {}, longID[:13]: {Crictl: true}, "sha256:" + longID: {Crictl: true, NoTrunc: true}} {
		if got := containerImage(c, o); got != want {
			t.Errorf("%+v: got %s, want %s", o, got, want)
		}
	}
	var long bytes.Buffer
	o := Options{Crictl: true, Verbose: true, Now: now}
	if err := Containers(&long, containers, o); err != nil || !strings.Contains(long.String(), "Image: sha256:"+longID+"\n") {
		t.Errorf("got %s, %v", long.String(), err)
	}
}
