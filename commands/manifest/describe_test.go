package manifest

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/diagnose"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

var describedAt = time.Unix(1000, 0)

// described returns the description of a pod of sync with one container.
func described(status *pod.ContainerStatus, change ...func(*kuberuntime.Description)) *kuberuntime.Description {
	spec := v1.PodSpec{Containers: []v1.Container{{
		Name: "main", Image: "busybox:1", Command: []string{"sh", "-c", "run the service"},
		Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse("16Mi")}},
	}}}
	d := &kuberuntime.Description{
		Pod:      &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "shop", UID: "u1", Labels: map[string]string{"app": "web"}}, Spec: spec},
		Status:   &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: strings.Repeat("0123456789abcdef", 4), Metadata: &runtimeapi.PodSandboxMetadata{}, CreatedAt: time.Unix(900, 0).UnixNano()}}},
		Recorded: true, Managed: true, State: &kuberuntime.PodState{Containers: []kuberuntime.ContainerState{{Name: "main"}}},
		Waiting: map[string]v1.ContainerStateWaiting{}, Unready: map[string]string{}, Logs: map[string][]string{},
	}
	d.Pod.Status.QOSClass = v1.PodQOSBurstable
	if status != nil {
		status.Name = "main"
		d.Status.Containers = append(d.Status.Containers, status)
	}
	for _, do := range change {
		do(d)
	}
	d.View = plan.Observe(d.Pod, d.Status, func(string, plan.Kind) plan.Result { return plan.Unknown })
	return d
}

func factsOf(d *kuberuntime.Description, owner kuberuntime.Owner) *diagnose.Facts {
	return &diagnose.Facts{At: describedAt, Pods: []*diagnose.Pod{{Description: d, Owner: owner}}}
}

func exited(status int, reason, message string) *pod.ContainerStatus {
	return &pod.ContainerStatus{
		ID: strings.Repeat("fedcba9876543210", 4), State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: status, Reason: reason, Message: message,
		StartedAt: time.Unix(985, 0), FinishedAt: time.Unix(990, 0), RestartCount: 3, LogPath: "/var/log/pods/shop_web_u1/main/3.log",
		ImageRef: "sha256:302682008092251e8c62a3dba65aae530bc413f0528f73130bbdf5e97485a3b1",
	}
}

func waiting(reason, message string) func(*kuberuntime.Description) {
	return func(d *kuberuntime.Description) {
		d.Waiting["main"] = v1.ContainerStateWaiting{Reason: reason, Message: message}
		d.State.Containers[0].NextTry = time.Unix(1037, 0)
	}
}

func event(at int64, container, reason, message string) kuberuntime.Event {
	return kuberuntime.Event{Time: time.Unix(at, 0), Container: container, Warning: true, Reason: reason, Message: message}
}

// TestWhatIsWrong: the first lines name the cause.
func TestWhatIsWrong(t *testing.T) {
	t.Parallel()
	running := func() *pod.ContainerStatus {
		return &pod.ContainerStatus{ID: "id", State: runtimeapi.ContainerState_CONTAINER_RUNNING, StartedAt: time.Unix(940, 0)}
	}
	probed := func(d *kuberuntime.Description) { d.Pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{} }
	with := func(events ...kuberuntime.Event) func(*kuberuntime.Description) {
		return func(d *kuberuntime.Description) { d.Events = events }
	}
	left := func(d *kuberuntime.Description) { d.Managed = false }
	never := func(d *kuberuntime.Description) { d.Pod.Spec.RestartPolicy = v1.RestartPolicyNever }
	const noFile = `failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: exec: "/bin/nosuch": stat /bin/nosuch: no such file or directory: unknown`
	for name, test := range map[string]struct {
		d    *kuberuntime.Description
		want string
	}{
		"all is well": {described(running()), "State: Running, 1/1 ready"},
		"a crash loop": {
			described(exited(3, "Error", ""), waiting("CrashLoopBackOff", "back-off 40s"), func(d *kuberuntime.Description) {
				d.Logs["main"] = []string{"1", "2", "3", "4", "panic:", "no database"}
			}),
			"State: CrashLoopBackOff, 0/1 ready, 3 restarts\nCause: main exited with status 3 (Error) 10s ago; it starts again in 37s\n| 2\n| 3\n| 4\n| panic:\n| no database",
		},
		"a crash that nobody answers": {
			described(exited(3, "Error", "no database\nat all"), waiting("CrashLoopBackOff", ""), left),
			"State: Error, 0/1 ready, 3 restarts\nCause: main exited with status 3 (Error) 10s ago: no database; at all",
		},
		"out of memory": {
			described(exited(137, "OOMKilled", ""), waiting("CrashLoopBackOff", "")),
			"State: CrashLoopBackOff, 0/1 ready, 3 restarts\nCause: main ran out of memory (OOMKilled, status 137) 10s ago; it starts again in 37s",
		},
		"a missing command": {
			described(exited(128, "StartError", noFile), waiting("RunContainerError", noFile)),
			"State: RunContainerError, 0/1 ready, 3 restarts\nCause: main could not start 10s ago: exec: \"/bin/nosuch\": stat /bin/nosuch: no such file or directory; it starts again in 37s",
		},
		"a missing image": {
			described(nil, waiting("ImagePullBackOff", "back-off 40s"), with(event(990, "main", "Failed", "pull image nosuch:1: not found"), event(991, "main", "BackOff", "back-off"))),
			"State: ImagePullBackOff, 0/1 ready\nCause: main cannot start: pull image nosuch:1: not found; next try in 37s",
		},
		"an image on its way": {
			described(nil, waiting("ContainerCreating", ""), with(event(940, "main", "Pulling", "pulling image nosuch:1"))),
			"State: ContainerCreating, 0/1 ready\nCause: main waits for its image: pulling image nosuch:1 for 60s",
		},
		"a configuration that cannot be": {
			described(nil, waiting("CreateContainerConfigError", "secret \"key\" not found"), with(event(990, "main", "Failed", "secret \"key\" not found"))),
			"State: CreateContainerConfigError, 0/1 ready\nCause: main cannot start: secret \"key\" not found; next try in 37s",
		},
		"a failing probe": {
			described(running(), probed, func(d *kuberuntime.Description) { d.Unready["main"] = "readiness probe failed: refused" }),
			"State: Running, 0/1 ready\nCause: main runs and is not ready: readiness probe failed: refused",
		},
		"a probe before its first result": {described(running(), probed), "State: Running, 0/1 ready\nCause: main runs and is not ready: its probe has not passed yet"},
		"killed by its probe": {
			described(exited(137, "Error", ""), waiting("CrashLoopBackOff", ""), with(event(980, "main", "Started", ""), event(989, "main", "Killing", "liveness probe failed"))),
			"State: CrashLoopBackOff, 0/1 ready, 3 restarts\nCause: main exited with status 137 (Error) 10s ago: liveness probe failed; it starts again in 37s",
		},
		"running again": {
			described(running(), func(d *kuberuntime.Description) {
				d.Status.Containers[0].RestartCount = 4
				last := exited(3, "Error", "")
				last.Name = "main"
				d.Status.Containers = append(d.Status.Containers, last)
			}),
			"State: Running, 1/1 ready, 4 restarts\nCause: main runs again: before, it exited with status 3 (Error) 10s ago",
		},
		"a sandbox that cannot be created": {
			described(nil, waiting("ContainerCreating", ""), with(event(990, "", "FailedCreatePodSandBox", "no network")), func(d *kuberuntime.Description) { d.Status.Sandboxes = nil }),
			"State: FailedCreatePodSandBox, 0/1 ready\nCause: the sandbox cannot be created: no network",
		},
		"a stopped pod": {
			described(exited(137, "Error", ""), left, func(d *kuberuntime.Description) {
				d.Status.Sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			}),
			"State: Stopped, 0/1 ready, 3 restarts\nCause: main exited with status 137 (Error) 10s ago, ended by SIGKILL, probably because its pod was stopped",
		},
		"a job that is done":    {described(exited(0, "Completed", ""), never), "State: Completed, 0/1 ready, 3 restarts"},
		"a job that has failed": {described(exited(1, "Error", ""), never), "State: Error, 0/1 ready, 3 restarts\nCause: main exited with status 1 (Error) 10s ago"},
		"an init container that crashes": {
			described(nil, waiting("PodInitializing", ""), func(d *kuberuntime.Description) {
				d.Pod.Spec.InitContainers = []v1.Container{{Name: "first", Image: "busybox:1"}, {Name: "setup", Image: "busybox:1"}}
				first, setup := exited(0, "Completed", ""), exited(1, "Error", "")
				first.Name, setup.Name = "first", "setup"
				d.Status.Containers = append(d.Status.Containers, setup, first)
				d.Waiting["setup"] = v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
			}),
			"State: Init:CrashLoopBackOff, 0/1 ready, 6 restarts\nCause: setup exited with status 1 (Error) 10s ago",
		},
		"an init container that runs": {
			described(nil, waiting("PodInitializing", ""), func(d *kuberuntime.Description) {
				d.Pod.Spec.InitContainers = []v1.Container{{Name: "setup", Image: "busybox:1"}}
				setup := running()
				setup.Name = "setup"
				d.Status.Containers = append(d.Status.Containers, setup)
			}),
			"State: Init:0/1, 0/1 ready",
		},
	} {
		p := &page{now: describedAt}
		f := factsOf(test.d, kuberuntime.Owner{})
		p.summary(test.d, diagnose.ExplainPod(f, f.Pods[0]))
		_, got, _ := strings.Cut(p.text.String(), "\n")
		lines := strings.Split(strings.TrimSpace(got), "\n")
		for i, line := range lines {
			lines[i] = strings.Join(strings.Fields(line), " ")
		}
		if diff := cmp.Diff(test.want, strings.Join(lines, "\n")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestDescriptionOnATerminal: at 80 and 200 columns no line is too long for the terminal.
func TestDescriptionOnATerminal(t *testing.T) {
	t.Parallel()
	c := exited(3, "Error", "")
	c.Mounts = []*runtimeapi.Mount{
		{ContainerPath: "/etc/hosts", HostPath: "/var/lib/crishim/pods/u1/etc-hosts"},
		{ContainerPath: "/data", HostPath: "/srv"},
		{ContainerPath: "/model", Image: &runtimeapi.ImageSpec{Image: "model:1"}, Readonly: true},
	}
	d := described(c, waiting("CrashLoopBackOff", "back-off 40s restarting failed container main"), func(d *kuberuntime.Description) {
		d.Logs["main"] = []string{"starting", "panic: no database at all, and a line that is longer than what fits on a terminal of 80 columns"}
		d.Pod.Status.PodIPs = []v1.PodIP{{IP: "10.1.2.3"}}
		created := event(900, "main", "Created", "created container fedcba9876543")
		created.Warning = false
		d.Events = []kuberuntime.Event{created, created, created, event(990, "main", "BackOff", "back-off 40s restarting failed container main")}
	})
	var out strings.Builder
	if err := writeDescription(&out, factsOf(d, kuberuntime.Owner{Dir: "/etc/pods"}), output.Options{Now: describedAt, Width: 80}); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimPrefix(`
Pod:           shop/web
State:         CrashLoopBackOff, 0/1 ready, 3 restarts
Cause:         main exited with status 3 (Error) 10s ago; it starts again in 37s
               | starting
               | panic: no database at all, and a line that is longer than what
                 fits on a terminal of 80 columns
IPs:           10.1.2.3
Made by:       crishim sync /etc/pods
Labels:        app=web
UID:           u1
QoS:           Burstable
Sandbox:       0123456789abc ready, attempt 0, created 100s ago
Container main:
  Image:       busybox:1 (3026820080922)
  Command:     sh -c run the service
  Limits:      memory=16Mi
  State:       CrashLoopBackOff, next try in 37s
  Last state:  exited with status 3 (Error) 10s ago
  Restarts:    3
  ID:          fedcba9876543
  Log:         /var/log/pods/shop_web_u1/main/3.log
  Mount:       /data from /srv (rw)
  Mount:       /model from image model:1 (ro)
Events:
  100s  Normal  Created (x3) main: created container fedcba9876543
  10s   Warning BackOff      main: back-off 40s restarting failed container main
`, "\n")
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	out.Reset()
	if err := writeDescription(&out, factsOf(d, kuberuntime.Owner{Dir: "/etc/pods"}), output.Options{Now: describedAt, Width: 200}); err != nil {
		t.Fatal(err)
	}
	want = strings.Replace(want, "than what\n                 fits", "than what fits", 1)
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("at 200 columns (-want +got):\n%s", diff)
	}
	out.Reset()
	if err := writeDescription(&out, factsOf(d, kuberuntime.Owner{Dir: "/etc/pods"}), output.Options{Now: describedAt, Width: 80, Color: true}); err != nil {
		t.Fatal(err)
	}
	const yellow = "  100s  Normal  Created (x3) main: created container fedcba9876543\n" +
		"  10s   \x1b[33mWarning\x1b[0m BackOff      main: back-off 40s restarting failed container main\n"
	if !strings.HasSuffix(out.String(), yellow) {
		t.Errorf("in colours:\n%q", out.String())
	}
	for _, part := range []string{"\nState:         \x1b[31m", "\n\x1b[31mCause:\x1b[0m         ", "\n\x1b[1mContainer main:\x1b[0m\n", "\n  State:       \x1b[31mCrashLoopBackOff\x1b[0m, ", "\n\x1b[1mEvents:\x1b[0m\n"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("no %q in colours:\n%q", part, out.String())
		}
	}
	want = strings.Replace(want, "than what fits", "than what\n                 fits", 1)
	if diff := cmp.Diff(want, regexp.MustCompile("\x1b\\[[0-9]*m").ReplaceAllString(out.String(), "")); diff != "" {
		t.Errorf("in colours, without them (-want +got):\n%s", diff)
	}
}

// TestNobodyKeepsThePod: describe reports that an unmanaged pod is not probed or restarted, and probes once itself.
func TestNobodyKeepsThePod(t *testing.T) {
	t.Parallel()
	d := described(&pod.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING, StartedAt: time.Unix(940, 0)}, func(d *kuberuntime.Description) {
		d.Managed, d.Pod.Spec.Containers[0].ReadinessProbe = false, &v1.Probe{}
	})
	for owner, want := range map[kuberuntime.Owner]string{
		{Apply: true}:      "Made by:       crishim apply, which has ended: it is not probed or restarted any more\n",
		{Dir: "/etc/pods"}: "Made by:       crishim sync /etc/pods, which does not run: it is not probed or restarted any more\n",
	} {
		var out strings.Builder
		if err := writeDescription(&out, factsOf(d, owner), output.Options{Now: describedAt}); err != nil {
			t.Fatal(err)
		}
		for _, line := range []string{want, "  Ready:       no, by one attempt just now\n"} {
			if !strings.Contains(out.String(), line) {
				t.Errorf("no %q in\n%s", line, out.String())
			}
		}
	}
}

func TestStatusLinesTellChanges(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	printer := cli.NewPrinter(&cli.Process{Out: &out})
	say := statusLines(printer)
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

// TestLongCommand: a long command is cut between characters.
func TestLongCommand(t *testing.T) {
	t.Parallel()
	d := described(nil, func(d *kuberuntime.Description) {
		d.Pod.Spec.Containers[0].Command = []string{"echo", strings.Repeat("é", maxCommand)}
	})
	p := &page{now: describedAt}
	p.container(d, d.View.Containers[0], nil)
	if want := "é ...\n"; !strings.Contains(p.text.String(), want) {
		t.Errorf("got %q", p.text.String())
	}
}

// TestReasonsOfHostileEvents: the reason of an event is read from a file, and is sanitised like the message.
func TestReasonsOfHostileEvents(t *testing.T) {
	t.Parallel()
	p := &page{width: 80}
	p.events([]kuberuntime.Event{{Reason: "Bad\x1b[31m\nhint: evil", Message: "m\x1b[2J"}})
	if text := p.text.String(); strings.Contains(text, "\x1b") || strings.Count(text, "\n") != 2 {
		t.Errorf("got %q", text)
	}
}

// TestPhaseOfYoungPods: a container without a readiness probe that has just started counts as running, not ready,
// because it may end at once.
func TestPhaseOfYoungPods(t *testing.T) {
	t.Parallel()
	for age, want := range map[time.Duration]string{100 * time.Millisecond: "running", time.Second: "ready"} {
		d := described(&pod.ContainerStatus{State: runtimeapi.ContainerState_CONTAINER_RUNNING, StartedAt: describedAt})
		d.Status.At = describedAt.Add(age)
		if got := phaseText(d.View, d.Status); got != want {
			t.Errorf("after %s: got %s, want %s", age, got, want)
		}
	}
}
