package diagnose

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/plan"
	"github.com/crishim/crishim/kuberuntime/pod"
)

var (
	now       = time.Unix(10_000, 0)
	sandboxID = strings.Repeat("5", 64)
	id        = strings.Repeat("a", 64)
	otherID   = strings.Repeat("b", 64)
)

// recorded returns a pod shop/web with one container that exited with the given status, or runs for -1.
func recorded(status int, change ...func(*Facts, *Pod, *pod.ContainerStatus)) *Facts {
	c := &pod.ContainerStatus{
		ID: id, Name: "main", SandboxID: sandboxID, State: runtimeapi.ContainerState_CONTAINER_EXITED, ExitCode: status, Reason: "Error",
		CreatedAt: now.Add(-2 * time.Hour), StartedAt: now.Add(-2 * time.Hour), FinishedAt: now.Add(-time.Minute), Image: "app:1",
	}
	switch status {
	case -1:
		c.State, c.ExitCode, c.Reason, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_RUNNING, 0, "", time.Time{}
	case 0:
		c.Reason = "Completed"
	}
	p := &Pod{Containers: map[string]*containerFacts{}, Description: &kuberuntime.Description{
		Pod:     &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "main", Image: "app:1"}}}},
		Status:  &pod.Status{Containers: []*pod.ContainerStatus{c}, Sandboxes: []*runtimeapi.PodSandboxStatus{{Id: sandboxID, Metadata: &runtimeapi.PodSandboxMetadata{}}}},
		Waiting: map[string]v1.ContainerStateWaiting{}, Unready: map[string]string{}, Logs: map[string][]string{},
	}}
	p.Pod.Name, p.Pod.Namespace = "web", "shop"
	f := &Facts{At: now, Pods: []*Pod{p}}
	for _, do := range change {
		do(f, p, c)
	}
	p.View = plan.Observe(p.Pod, p.Status, func(string, plan.Kind) plan.Result { return plan.Unknown })
	if p.View.Reason != "" { // as APIPod does
		p.Pod.Status.Reason, p.Pod.Status.Message = p.View.Reason, p.View.Why
	}
	return f
}

type change = func(*Facts, *Pod, *pod.ContainerStatus)

func reason(text, message string) change {
	return func(_ *Facts, _ *Pod, c *pod.ContainerStatus) {
		c.Reason, c.Message, c.RuntimeMessage = text, message, message
	}
}

func told(container, reason, waiting, message string) change {
	return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Events = append(p.Events, kuberuntime.Event{Time: now.Add(-time.Minute), Container: container, Reason: reason, Waiting: waiting, Message: message})
	}
}

func killing(cause plan.Reason, message string) change {
	return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Events = append(p.Events, kuberuntime.Event{Time: now.Add(-time.Minute), Container: "main", Reason: "Killing", Cause: cause, Message: message})
	}
}

// userStopped records a stop by a user that long ago. The container ended a minute ago.
func userStopped(ago time.Duration) change {
	return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Events = append(p.Events, kuberuntime.Event{Time: now.Add(-ago), Container: "main", ID: id, Reason: "Killing", Message: "stopping container main for crishim stop"})
	}
}

func waiting(reason string) change {
	return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Status.Containers = nil
		p.Waiting["main"] = v1.ContainerStateWaiting{Reason: reason}
	}
}

func noSandbox(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
	p.Status.Containers, p.Status.Sandboxes = nil, nil
}

func kill(of string) change {
	return func(f *Facts, _ *Pod, _ *pod.ContainerStatus) {
		f.Node.Kills = append(f.Node.Kills, oomKill{Process: "java", Pid: 7, Group: "/docker/" + of, LimitOf: "/docker/" + of, Usage: 1 << 24, Limit: 1 << 24, Resident: 1 << 23})
	}
}

func engine(action string) change {
	return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Journal = append(p.Journal, client.EngineEvent{Time: now.Add(-time.Minute), Action: action, ID: id, Signal: "9"})
	}
}

func detail(d containerFacts) change {
	return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Containers[id] = &d }
}

func runc(text string) string {
	return "failed to create shim task: OCI runtime create failed: runc create failed: unable to start container process: " + text + ": unknown"
}

// TestVerdicts: each kind of end has its code. A "?" after the code marks an inferred cause.
func TestVerdicts(t *testing.T) {
	t.Parallel()
	probed := func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Pod.Spec.Containers[0].ReadinessProbe = &v1.Probe{} }
	stopped := func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Status.Sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	host := func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Pod.Spec.HostNetwork = true
		p.Pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}}
		p.Ports = map[hostPort]portHolder{{80, "tcp"}: {Process: "nginx", Pid: 9, Pod: "shop/other"}}
	}
	inside := func(container, protocol string) change {
		return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
			p.Pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80}}
			p.Inside = map[hostPort]portHolder{{80, protocol}: {Process: "nginx", Pid: 9, Container: container}}
		}
	}
	sandboxEvents := func(actions ...string) change {
		return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
			for _, action := range actions {
				p.Journal = append(p.Journal, client.EngineEvent{Time: now.Add(-time.Minute), Action: action, ID: sandboxID, Signal: "15"})
			}
		}
	}
	hostPath := func(missing ...string) change {
		return func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
			p.Pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/no/such"}}}}
			p.Pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "v"}}
			p.Missing = missing
		}
	}
	foreign := detail(containerFacts{Architecture: "s390x"})
	for name, c := range map[string]struct {
		facts *Facts
		want  string
	}{
		"it runs":                     {recorded(-1), ""},
		"it has done its work":        {recorded(0), ""},
		"another was short of memory": {recorded(-1, kill(otherID)), ""},
		"its own message and log": {recorded(3, func(_ *Facts, p *Pod, c *pod.ContainerStatus) {
			c.Message = runc("exec: x: no such file or directory")
			p.Logs["main"] = []string{"Out of memory: Killed process 1 (main)"}
		}), "error exited"},
		"its labels and annotations": {recorded(3, func(_ *Facts, _ *Pod, c *pod.ContainerStatus) {
			c.Labels = map[string]string{"reason": "OOMKilled"}
			c.Annotations = c.Labels
		}), "error exited"},
		"the runtime's word":                  {recorded(137, reason("OOMKilled", "")), "error out-of-memory"},
		"a kill the runtime missed":           {recorded(137, kill(id)), "error out-of-memory"},
		"only a process of it":                {recorded(1, kill(id)), "error exited"},
		"a process of one that runs":          {recorded(-1, kill(id)), "warning process-killed"},
		"counted by its cgroup":               {recorded(-1, detail(containerFacts{Memory: &memoryUse{Kills: 2, Peak: 1 << 20}})), "warning process-killed"},
		"paused":                              {recorded(-1, probed, detail(containerFacts{Paused: true})), "error paused"},
		"noted by the engine":                 {recorded(137, engine("oom")), "error out-of-memory"},
		"noted of the time before":            {recorded(137, engine("oom"), engine("start")), "error ended-by-signal?"},
		"killed by a person":                  {recorded(137, engine("kill")), "note stopped"},
		"killed, by what is not known":        {recorded(137), "error ended-by-signal?"},
		"a crash":                             {recorded(139), "error ended-by-signal?"},
		"stopped with its pod":                {recorded(143, stopped), "note stopped?"},
		"killed with its pod":                 {recorded(137, stopped), "note stopped?"},
		"killed, and its sandbox is gone":     {recorded(137, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Status.Sandboxes = nil }), "note stopped?"},
		"with the node":                       {recorded(255, func(f *Facts, _ *Pod, c *pod.ContainerStatus) { f.Node.Booted = c.FinishedAt }), "error node-restarted?"},
		"with the engine":                     {recorded(255, func(f *Facts, _ *Pod, c *pod.ContainerStatus) { f.Node.EngineStarted = c.FinishedAt }), "error engine-restarted?"},
		"by itself after it":                  {recorded(3, func(f *Facts, _ *Pod, c *pod.ContainerStatus) { f.Node.EngineStarted = c.FinishedAt.Add(-time.Minute) }), "error exited"},
		"long after the engine's start":       {recorded(255, func(f *Facts, _ *Pod, c *pod.ContainerStatus) { f.Node.EngineStarted = c.FinishedAt.Add(-time.Hour) }), "error exited"},
		"no command":                          {recorded(127, reason("ContainerCannotRun", runc(`exec: "x": executable file not found in $PATH`))), "error command-not-found"},
		"no file":                             {recorded(128, reason("StartError", runc(`exec: "/x": stat /x: no such file or directory`))), "error command-not-found"},
		"not to be run":                       {recorded(126, reason("ContainerCannotRun", runc(`exec: "/x": permission denied`))), "error not-executable"},
		"a command with an odd name":          {recorded(126, reason("ContainerCannotRun", runc(`exec: "no such file or directory": permission denied`))), "error not-executable"},
		"for other processors":                {recorded(126, reason("StartError", runc("exec /x: exec format error")), foreign), "error wrong-architecture"},
		"a script without its first line":     {recorded(126, reason("StartError", runc("exec /x: exec format error"))), "error not-executable"},
		"for other processors, it seems":      {recorded(255, foreign), "error wrong-architecture?"},
		"a program for other processors":      {recorded(128, reason("StartError", runc("exec /x: exec format error")), detail(containerFacts{Program: &program{Path: "/x", Machine: "s390"}})), "error wrong-architecture"},
		"ended at once, for other processors": {recorded(255, detail(containerFacts{Program: &program{Path: "/x", Machine: "s390"}})), "error wrong-architecture?"},
		"no loader":                           {recorded(128, reason("StartError", runc("exec /x: no such file or directory")), detail(containerFacts{Program: &program{Path: "/x", Interpreter: "/lib/ld.so"}})), "error interpreter-not-found"},
		"a script without its interpreter":    {recorded(1, detail(containerFacts{Program: &program{Path: "/x", Interpreter: "/bin/bash"}})), "error interpreter-not-found"},
		"a program that can run":              {recorded(1, detail(containerFacts{Program: &program{Path: "/x"}})), "error exited"},
		"a mount that is not there":           {recorded(128, reason("StartError", runc("error mounting x")), detail(containerFacts{Missing: []string{"/x"}})), "error mount-missing"},
		"a start that failed otherwise":       {recorded(128, reason("StartError", "the shim died")), "error start-failed"},
		"a port that another has":             {recorded(1, host), "error port-taken?"},
		"a port that another container has":   {recorded(1, inside("proxy", "tcp")), "error port-taken?"},
		"a UDP port of that number":           {recorded(1, inside("proxy", "udp")), "error exited"},
		"a port of no container of the pod":   {recorded(1, inside("", "tcp")), "error exited"},
		"a port of its own":                   {recorded(1, inside("main", "tcp")), "error exited"},
		"no such image":                       {recorded(-1, waiting("ErrImagePull"), told("main", "Failed", "ErrImagePull", "pull image app:1: manifest unknown")), "error image-not-found"},
		"an image with an odd name":           {recorded(-1, waiting("ErrImagePull"), func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Pod.Spec.Containers[0].Image = "unauthorized" }, told("main", "Failed", "ErrImagePull", "pull image unauthorized: not found")), "error image-not-found"},
		"no such image, in a registry's code": {recorded(-1, waiting("ErrImagePull"), told("main", "Failed", "ErrImagePull", `pull image app:1: unknown: {"errors":[{"code":"NAME_UNKNOWN","message":"Unknown name"}]}`)), "error image-not-found"},
		"a login":                             {recorded(-1, waiting("ErrImagePull"), told("main", "Failed", "ErrImagePull", "pull image app:1: unauthorized")), "error image-not-allowed"},
		"a registry that limits pulls":        {recorded(-1, waiting("ErrImagePull"), told("main", "Failed", "ErrImagePull", "pull image app:1: the registry limits how much may be pulled: toomanyrequests: slow down")), "error registry-limit"},
		"a registry in trouble":               {recorded(-1, waiting("RegistryUnavailable"), told("main", "Failed", "RegistryUnavailable", "pull image app:1: the registry is in trouble: received unexpected HTTP status: 503 Service Unavailable")), "error registry-trouble"},
		"a registry that is away":             {recorded(-1, waiting("RegistryUnavailable"), told("main", "Failed", "RegistryUnavailable", "pull image app:1: connection refused")), "error registry-not-found"},
		"an image for others only":            {recorded(-1, waiting("ErrImagePull"), told("main", "Failed", "ErrImagePull", "no matching manifest for linux/amd64")), "error wrong-architecture"},
		"a name that is none":                 {recorded(-1, waiting("InvalidImageName"), told("main", "Failed", "InvalidImageName", "A:B")), "error image-name-invalid"},
		"an image that is not to be pulled":   {recorded(-1, waiting("ErrImageNeverPull"), told("main", "Failed", "ErrImageNeverPull", "not present")), "error image-not-present"},
		"an image on its way":                 {recorded(-1, waiting("ContainerCreating"), told("main", "Pulling", "", "pulling")), "warning image-pulling"},
		"no secret":                           {recorded(-1, waiting("CreateContainerConfigError"), told("main", "Failed", "CreateContainerConfigError", "secret")), "error config-error"},
		"no network":                          {recorded(-1, noSandbox, told("", "FailedCreatePodSandBox", "", `plugin type="bridge" failed (add): no bridge`)), "error network-failed"},
		"no address":                          {recorded(-1, noSandbox, told("", "FailedCreatePodSandBox", "", "cni: no IP addresses available in range set")), "error no-address-left"},
		"a host port that another pod has":    {recorded(-1, noSandbox, told("", "FailedCreatePodSandBox", "", "host port 80/TCP is taken by pod default/web")), "error port-taken"},
		"a host port that another has":        {recorded(-1, noSandbox, told("", "FailedCreatePodSandBox", "", "Bind for 0.0.0.0:80 failed: port is already allocated")), "error port-taken"},
		"no volume":                           {recorded(-1, noSandbox, told("", "FailedMount", "", "volume v: stat /x: no such file or directory")), "error mount-missing"},
		"no path of the host":                 {recorded(-1, waiting("CreateContainerError"), hostPath("/no/such"), told("main", "Failed", "CreateContainerError", "stat /no/such: no such file or directory")), "error mount-missing"},
		"a path that may be on the host":      {recorded(-1, waiting("CreateContainerError"), hostPath(), told("main", "Failed", "CreateContainerError", "stat /no/such: no such file or directory")), "error start-failed"},
		"a seccomp profile that is not there": {recorded(-1, waiting("CreateContainerError"), told("main", "Failed", "CreateContainerError", "create container main: seccomp profile: open /x.json: no such file or directory")), "error start-failed"},
		"a working directory that is a file":  {recorded(-1, waiting("CreateContainerError"), told("main", "Failed", "CreateContainerError", "create container main: Error response from daemon: Cannot mkdir: /etc/passwd is not a directory")), "error start-failed"},
		"the same, said by runc":              {recorded(128, reason("StartError", runc("mkdir /etc/passwd: not a directory"))), "error start-failed"},
		"a file that is no program":           {recorded(1, detail(containerFacts{Program: &program{Path: "/x", NoProgram: true}})), "error not-executable?"},
		"a pod after its deadline": {recorded(137, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
			p.Pod.Status.Reason, p.Pod.Status.Message = "DeadlineExceeded", "it has run for its activeDeadlineSeconds"
		}, told("main", "Started", "", ""), killing("", "stopping container main")), "error deadline-exceeded"},
		"a Job that failed too often": {recorded(3, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
			p.Pod.Annotations = map[string]string{pod.BackoffLimitAnnotation: "0"}
		}), "error exited, error pod-failed"},
		"not ready":          {recorded(-1, probed), "error not-ready"},
		"ended by its probe": {recorded(137, told("main", "Started", "", ""), killing(plan.ReasonLiveness, "failed its liveness probe"), killing("", "stopping container main")), "error killed-by-probe"},
		"runs again after its probe": {recorded(-1, func(_ *Facts, p *Pod, c *pod.ContainerStatus) {
			before := *c
			before.ID, before.State, before.ExitCode, before.Reason, before.FinishedAt = otherID, runtimeapi.ContainerState_CONTAINER_EXITED, 137, "Error", now.Add(-time.Minute)
			before.StartedAt, c.StartedAt, c.RestartCount = now.Add(-2*time.Minute), now.Add(-time.Minute), 1
			p.Status.Containers = append(p.Status.Containers, &before)
		}, told("main", "Started", "", ""), killing(plan.ReasonStartup, "failed its startup probe"), told("main", "Started", "", "")), "warning killed-by-probe"},
		"ended by its hook":      {recorded(137, told("main", "Started", "", ""), told("main", "FailedPostStartHook", "", "status 1"), killing(plan.ReasonPostStart, "postStart hook failed")), "error hook-failed"},
		"stopped by its runtime": {recorded(137, told("main", "Started", "", ""), killing("", "stopping container main")), "note stopped"},
		"waits for an init container": {recorded(-1, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
			p.Pod.Spec.InitContainers, p.Pod.Spec.Containers = p.Pod.Spec.Containers, []v1.Container{{Name: "app", Image: "app:1"}}
		}), "note not-ready"},
		"an init container runs again": {recorded(-1, func(_ *Facts, p *Pod, c *pod.ContainerStatus) {
			p.Pod.Spec.InitContainers, p.Pod.Spec.Containers = p.Pod.Spec.Containers, []v1.Container{{Name: "app", Image: "app:1"}}
			before := *c
			before.ID, before.State, before.ExitCode, before.Reason, before.FinishedAt = otherID, runtimeapi.ContainerState_CONTAINER_EXITED, 3, "Error", now.Add(-2*time.Minute)
			before.StartedAt, c.StartedAt, c.RestartCount = now.Add(-3*time.Minute), now.Add(-2*time.Minute), 1
			p.Status.Containers = append(p.Status.Containers, &before)
		}), "warning restarted"},
		"stopped by a user":     {recorded(137, userStopped(2*time.Minute)), "note stopped"},
		"signalled long before": {recorded(1, userStopped(time.Hour)), "error exited"},
		"stopped with a long grace period": {recorded(137, userStopped(11*time.Minute), func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
			p.Events[len(p.Events)-1].Until = now.Add(-time.Minute)
		}), "note stopped"},
		"ended before the user's stop": {recorded(1, userStopped(0)), "error exited"},
		"stopped the time before":      {recorded(137, killing("", "stopping container main"), told("main", "Started", "", "")), "error ended-by-signal?"},
		"without its sandbox":          {recorded(-1, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Status.Sandboxes = nil }), "error sandbox-gone"},
		"lost":                         {recorded(-1, func(_ *Facts, _ *Pod, c *pod.ContainerStatus) { c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN }), "error state-unknown"},
		"made and left":                {recorded(-1, func(_ *Facts, _ *Pod, c *pod.ContainerStatus) { c.State = runtimeapi.ContainerState_CONTAINER_CREATED }), "note not-started"},
		"stopped, with no journal":     {recorded(143), "note stopped?"},
		"its sandbox was killed":       {recorded(137, stopped, sandboxEvents("die")), "error sandbox-gone"},
		"its sandbox was stopped":      {recorded(137, stopped, sandboxEvents("kill", "die")), "note stopped?"},
		"its sandbox was lost":         {recorded(137, told("main", "Started", "", ""), told("", "SandboxChanged", "", "the sandbox is not ready"), killing("", "stopping container main")), "error sandbox-gone"},
		"a full volume":                {recorded(1, detail(containerFacts{Full: []string{"/data"}})), "error disk-full?"},
		"removed by hand":              {recorded(-1, waiting("CrashLoopBackOff"), told("main", "Started", "", ""), told("main", "BackOff", "CrashLoopBackOff", "back-off 10s")), ""},
		"removed, and kept by crishim": {recorded(-1, waiting("CreateContainerError"), func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Managed = true }, told("main", "Started", "", ""), told("main", "Failed", "CreateContainerError", "no")), "error start-failed"},
		"a manifest that is wrong": {recorded(0, func(f *Facts, _ *Pod, _ *pod.ContainerStatus) {
			f.Node.Invalid = []kuberuntime.InvalidManifest{{File: "/pods/web.yaml", Problems: []string{"/pods/web.yaml: spec: required", "kind: required"}}}
		}), "error manifest-invalid"},
		"a full disk": {recorded(0, func(f *Facts, _ *Pod, _ *pod.ContainerStatus) {
			f.Node.Filesystems = []Filesystem{{Path: "/", Space: 0.01, Inodes: 1}}
		}), "error disk-full"},
		"a disk without inodes": {recorded(0, func(f *Facts, _ *Pod, _ *pod.ContainerStatus) {
			f.Node.Filesystems = []Filesystem{{Path: "/", Space: 1}}
		}), "error inodes-full"},
		"a runtime without a network": {recorded(0, func(f *Facts, _ *Pod, _ *pod.ContainerStatus) {
			f.Node.Conditions = []*runtimeapi.RuntimeCondition{{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Reason: "NetworkPluginNotReady"}}
		}), "error network-not-ready"},
	} {
		var got []string
		for _, f := range Explain(c.facts) {
			text := fmt.Sprint(f.Severity, " ", f.Code)
			if f.Probable {
				text += "?"
			}
			if got = append(got, text); f.Probable != strings.Contains(f.Text, "probably") {
				t.Errorf("%s: %q, and probable is %v", name, f.Text, f.Probable)
			}
			if f.Severity != Note && len(f.Next) == 0 {
				t.Errorf("%s: nothing to do next", name)
			}
			if strings.Count(f.Text, ".yaml") > 1 {
				t.Errorf("%s: %q names the file twice", name, f.Text)
			}
			for _, next := range f.Next {
				if strings.Contains(next, "TARGET") || strings.Contains(next, "POD ") || strings.HasSuffix(next, " POD") {
					t.Errorf("%s: next is %q", name, next)
				}
			}
		}
		if diff := cmp.Diff(c.want, strings.Join(got, ", ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestNextCommandsWork: debug needs a container that runs, so that one which cannot start is copied; what ended with the engine is started
// where its sandbox is left, else applied again.
func TestNextCommandsWork(t *testing.T) {
	t.Parallel()
	ended := func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Status.Sandboxes[0].State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	byApply := func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Owner.Apply = true }
	withEngine := func(f *Facts, _ *Pod, c *pod.ContainerStatus) { f.Node.EngineStarted = c.FinishedAt }
	noCommand := reason("StartError", runc(`exec: "/x": stat /x: no such file or directory`))
	for name, c := range map[string]struct {
		facts *Facts
		want  string // one of the commands
	}{
		"it cannot start":                 {recorded(128, noCommand), "crishim debug --copy-to main-debug shop/web/main"},
		"it cannot start in an ended pod": {recorded(128, noCommand, ended), "crishim debug --copy-to main-debug shop/web/main"},
		"with the engine":                 {recorded(255, withEngine, byApply), "crishim restart shop/web/main"},
		"with the engine and its sandbox": {recorded(255, withEngine, byApply, ended), "crishim apply -f MANIFEST"},
		"a volume":                        {recorded(-1, noSandbox, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Missing = []string{"/dev/nosuch"} }, told("", "FailedMount", "", "volume v: stat /dev/nosuch: no such file or directory")), "ls -ld /dev/nosuch"},
		"a name from another tool":        {recorded(128, noCommand, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Pod.Name = "$(reboot)" }), "crishim debug --copy-to main-debug 'shop/$(reboot)/main'"},
		"a port":                          {recorded(-1, noSandbox, told("", "FailedCreatePodSandBox", "", "Bind for 0.0.0.0:80 failed: port is already allocated")), "crishim who :80"},
	} {
		next := Explain(c.facts)[0].Next
		if !slices.Contains(next, c.want) {
			t.Errorf("%s: got %q, want %s", name, next, c.want)
		}
	}
}

// TestNextIsAsItIs: images and paths are unchanged in suggested command lines, whatever words they contain.
func TestNextIsAsItIs(t *testing.T) {
	t.Parallel()
	f := recorded(-1, waiting("ErrImageNeverPull"), told("main", "Failed", "ErrImageNeverPull", "not present"), func(_ *Facts, p *Pod, _ *pod.ContainerStatus) {
		p.Pod.Spec.Containers[0].Image = "app:POD-TARGET"
	})
	if next := Explain(f)[0].Next; !slices.Contains(next, "crishim pull app:POD-TARGET") {
		t.Errorf("got %q", next)
	}
	f = recorded(-1, noSandbox, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Missing = []string{"/a POD b", "/it's TARGET 'POD'"} },
		told("", "FailedMount", "", "volume v: stat /x: no such file or directory"))
	want := []string{`ls -ld '/it'\''s TARGET '\''POD'\'''`, "ls -ld '/a POD b'", "crishim describe shop/web"}
	if diff := cmp.Diff(want, Explain(f)[0].Next); diff != "" {
		t.Error(diff)
	}
}

// TestKilledSandbox: the evidence tells a requested kill of the sandbox from an end without a request.
func TestKilledSandbox(t *testing.T) {
	t.Parallel()
	die := client.EngineEvent{Time: now.Add(-time.Minute), Action: "die", ID: sandboxID}
	kill := client.EngineEvent{Time: now.Add(-time.Minute), Action: "kill", ID: sandboxID, Signal: "9"}
	for want, journal := range map[string][]client.EngineEvent{
		"the engine noted the end of sandbox 5555555555555, without a request to stop it":            {die},
		"the engine was asked at " + clock(kill.Time) + " to send signal 9 to sandbox 5555555555555": {kill, die},
	} {
		f := Explain(recorded(137, func(_ *Facts, p *Pod, _ *pod.ContainerStatus) { p.Journal = journal }))[0]
		if f.Code != codeSandboxGone || !slices.Contains(f.Evidence, want) {
			t.Errorf("got %s, %q", f.Code, f.Evidence)
		}
	}
}

// TestWorstFirst: errors come before warnings, and newer findings before older findings.
func TestWorstFirst(t *testing.T) {
	t.Parallel()
	f := recorded(-1, kill(id))
	for i, one := range []*Facts{recorded(3), recorded(4, func(_ *Facts, _ *Pod, c *pod.ContainerStatus) { c.FinishedAt = now })} {
		one.Pods[0].Pod.Name = fmt.Sprint("web", i)
		f.Pods = append(f.Pods, one.Pods...)
	}
	r := Report{Findings: Explain(f)}
	if diff := cmp.Diff([]string{"shop/web1/main", "shop/web0/main", "shop/web/main"}, r.Names()); diff != "" {
		t.Error(diff)
	}
}

// TestGroups: findings that differ in more than times and addresses are not one.
func TestGroups(t *testing.T) {
	t.Parallel()
	var findings []Finding
	for _, text := range []string{
		"c exited with status 1 (Error) 5s ago; it starts again in 1m30s", "c exited with status 1 (Error) 61s ago; it starts again in 2m", "c exited with status 127 (Error) 5s ago",
		"dial tcp 10.0.0.1:8080: refused", "dial tcp 10.0.0.22:80: refused", "pull image app:1", "pull image app:2", "host port 80 is taken", "host port 81 is taken",
		"pull image app:1.2.3.4", "pull image app:1.2.3.5",
	} {
		findings = append(findings, Finding{Pod: "shop/web", Text: text})
	}
	var got []int
	for _, group := range Groups(findings) {
		got = append(got, len(group))
	}
	if diff := cmp.Diff([]int{2, 1, 2, 1, 1, 1, 1, 1, 1}, got); diff != "" {
		t.Error(diff)
	}
}

// TestCodes: each code is listed once, for the help.
func TestCodes(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("explain.go")
	if err != nil {
		t.Fatal(err)
	}
	var want []Code
	for _, m := range regexp.MustCompile(`(?m)^\t\w+ +Code += "([a-z-]+)"`).FindAllSubmatch(source, -1) {
		want = append(want, Code(m[1]))
	}
	if diff := cmp.Diff(want, Codes()); diff != "" || len(want) == 0 {
		t.Error(diff)
	}
}
