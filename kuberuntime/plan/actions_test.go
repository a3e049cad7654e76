package plan

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

const (
	created = runtimeapi.ContainerState_CONTAINER_CREATED
	running = runtimeapi.ContainerState_CONTAINER_RUNNING
	exited  = runtimeapi.ContainerState_CONTAINER_EXITED
	unknown = runtimeapi.ContainerState_CONTAINER_UNKNOWN
)

// brief is a readable form of Actions: names instead of indexes and statuses.
type brief struct {
	KillPod, CreateSandbox bool
	Attempt                uint32
	Kill                   []string
	Init, Ephemeral, Start []int
}

func of(a *Actions) brief {
	b := brief{KillPod: a.KillPod, CreateSandbox: a.CreateSandbox, Attempt: a.Attempt, Init: a.StartInit, Ephemeral: a.StartEphemeral, Start: a.Start}
	for _, k := range a.Kill {
		b.Kill = append(b.Kill, k.Status.Name+" "+string(k.Reason))
	}
	return b
}

type podOption func(*v1.Pod)

func policy(p v1.RestartPolicy) podOption { return func(pod *v1.Pod) { pod.Spec.RestartPolicy = p } }

func inits(names ...string) podOption {
	always := v1.ContainerRestartPolicyAlways
	return func(pod *v1.Pod) {
		for _, name := range names {
			c := v1.Container{Name: name, Image: name + ":1"}
			if name[0] == 's' { // a sidecar
				c.RestartPolicy = &always
			}
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		}
	}
}

func startupProbe(p *v1.Pod) {
	for i := range p.Spec.InitContainers {
		if pod.IsSidecar(&p.Spec.InitContainers[i]) {
			p.Spec.InitContainers[i].StartupProbe = &v1.Probe{}
		}
	}
}

func ephemeral(p *v1.Pod) {
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}}}
}

func hostNetwork(p *v1.Pod) { p.Spec.HostNetwork = true }

// podWith returns a pod with the containers a and b.
func podWith(options ...podOption) *v1.Pod {
	p := &v1.Pod{Spec: v1.PodSpec{RestartPolicy: v1.RestartPolicyAlways, Containers: []v1.Container{{Name: "a", Image: "a:1"}, {Name: "b", Image: "b:1"}}}}
	for _, o := range options {
		o(p)
	}
	return p
}

func sandbox(id string, attempt uint32, ready bool) *runtimeapi.PodSandboxStatus {
	s := &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: attempt}, State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.2"},
	}
	if ready {
		s.State = runtimeapi.PodSandboxState_SANDBOX_READY
	}
	return s
}

// had returns a container of sandbox "new". Its id is its name.
func had(name string, state runtimeapi.ContainerState, exit int) *pod.ContainerStatus {
	return &pod.ContainerStatus{
		ID: name, Name: name, SandboxID: "new", State: state, ExitCode: exit,
		Hash: pod.ContainerHash(&v1.Container{Name: name, Image: name + ":1"}),
	}
}

func withHash(c *pod.ContainerStatus, h uint64) *pod.ContainerStatus { c.Hash = h; return c }

func replaced(c *pod.ContainerStatus) *pod.ContainerStatus { c.Replaced = true; return c }

func inSandbox(c *pod.ContainerStatus, id string) *pod.ContainerStatus { c.SandboxID = id; return c }

// failing returns Probes: the named containers fail their probe of this kind.
func failing(kind Kind, names ...string) Probes {
	return func(id string, asked Kind) Result {
		switch {
		case asked != kind:
			return Unknown
		case slices.Contains(names, id):
			return Failure
		}
		return Success
	}
}

func TestComputeSandbox(t *testing.T) {
	t.Parallel()
	both := []*pod.ContainerStatus{had("a", running, 0), had("b", running, 0)}
	ended := []*pod.ContainerStatus{had("a", exited, 0), had("b", exited, 3)}
	noAddress := sandbox("new", 0, true)
	noAddress.Network = &runtimeapi.PodSandboxNetworkStatus{}
	noNetwork := sandbox("new", 0, true)
	noNetwork.Network = nil
	onHost := sandbox("new", 2, true)
	onHost.Linux = &runtimeapi.LinuxPodSandboxStatus{Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}}}
	onHost.Network = nil
	type sandboxes = []*runtimeapi.PodSandboxStatus
	cases := []struct {
		name       string
		pod        *v1.Pod
		sandboxes  sandboxes
		containers []*pod.ContainerStatus
		want       brief
	}{
		{"nothing there", podWith(), nil, nil, brief{KillPod: true, CreateSandbox: true, Start: []int{0, 1}}},
		{"nothing there, with init containers", podWith(inits("i", "j")), nil, nil, brief{KillPod: true, CreateSandbox: true, Init: []int{0}}},
		{"all runs", podWith(), sandboxes{sandbox("new", 1, true)}, both, brief{Attempt: 1}},
		{"two ready", podWith(), sandboxes{sandbox("new", 1, true), sandbox("old", 0, true)}, both, brief{KillPod: true, CreateSandbox: true, Attempt: 2, Start: []int{0, 1}}},
		{"an old one beside the ready one", podWith(), sandboxes{sandbox("new", 1, true), sandbox("old", 0, false)}, both, brief{Attempt: 1}},
		{"not ready", podWith(), sandboxes{sandbox("new", 3, false)}, ended, brief{KillPod: true, CreateSandbox: true, Attempt: 4, Start: []int{0, 1}}},
		{"no address", podWith(), sandboxes{noAddress}, both, brief{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []int{0, 1}}},
		{"a runtime that reports no network", podWith(), sandboxes{noNetwork}, both, brief{}},
		{"host network needs no address", podWith(hostNetwork), sandboxes{onHost}, both, brief{Attempt: 2}},
		{"moves to the host network", podWith(hostNetwork), sandboxes{sandbox("new", 0, true)}, both, brief{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []int{0, 1}}},
		{"policy Never stays dead", podWith(policy(v1.RestartPolicyNever)), sandboxes{sandbox("new", 0, false)}, ended, brief{KillPod: true, Attempt: 1}},
		{"policy Never before any container", podWith(policy(v1.RestartPolicyNever)), sandboxes{sandbox("new", 0, false)}, nil, brief{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []int{0, 1}}},
		{"policy OnFailure leaves out what succeeded", podWith(policy(v1.RestartPolicyOnFailure)), sandboxes{sandbox("new", 0, false)}, ended, brief{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []int{1}}},
		{"policy OnFailure, all succeeded", podWith(policy(v1.RestartPolicyOnFailure)), sandboxes{sandbox("new", 0, false)},
			[]*pod.ContainerStatus{had("a", exited, 0), had("b", exited, 0)}, brief{KillPod: true, Attempt: 1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got := Compute(c.pod, &pod.Status{Sandboxes: c.sandboxes, Containers: c.containers}, nil)
			if diff := cmp.Diff(c.want, of(got)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestComputeContainers(t *testing.T) {
	t.Parallel()
	a, b := had("a", running, 0), had("b", running, 0)
	never, onFailure := policy(v1.RestartPolicyNever), policy(v1.RestartPolicyOnFailure)
	deleted := func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1700000000, 0)} }
	type list = []*pod.ContainerStatus
	cases := []struct {
		name       string
		pod        *v1.Pod
		containers list
		probes     Probes
		want       brief
	}{
		{"one missing", podWith(), list{a}, nil, brief{Start: []int{1}}},
		{"one ended, Always", podWith(), list{a, had("b", exited, 0)}, nil, brief{Start: []int{1}}},
		{"one ended well, OnFailure", podWith(onFailure), list{a, had("b", exited, 0)}, nil, brief{}},
		{"one failed, OnFailure", podWith(onFailure), list{a, had("b", exited, 1)}, nil, brief{Start: []int{1}}},
		{"one failed, Never", podWith(never), list{a, had("b", exited, 1)}, nil, brief{}},
		{"one created, Never", podWith(never), list{a, had("b", created, 0)}, nil, brief{Start: []int{1}}},
		{"one unknown", podWith(), list{a, had("b", unknown, 0)}, nil, brief{Start: []int{1}, Kill: []string{"b Unknown"}}},
		{"the newest attempt counts", podWith(), list{a, b, had("b", exited, 1)}, nil, brief{}},
		{"all ended, Never", podWith(never), list{had("a", exited, 0), had("b", exited, 1)}, nil, brief{KillPod: true}},
		{"new image", podWith(), list{a, withHash(had("b", running, 0), 1)}, nil, brief{Start: []int{1}, Kill: []string{"b Changed"}}},
		{"new image, Never", podWith(never), list{a, withHash(had("b", running, 0), 1)}, nil, brief{Start: []int{1}, Kill: []string{"b Changed"}}},
		{"liveness failed", podWith(), list{a, b}, failing(Liveness, "a"), brief{Start: []int{0}, Kill: []string{"a LivenessProbe"}}},
		{"liveness failed, Never", podWith(never), list{a, b}, failing(Liveness, "a"), brief{Kill: []string{"a LivenessProbe"}}},
		{"startup failed", podWith(), list{a, b}, failing(Startup, "b"), brief{Start: []int{1}, Kill: []string{"b StartupProbe"}}},
		{"last one fails liveness, Never", podWith(never), list{a, had("b", exited, 0)}, failing(Liveness, "a"), brief{KillPod: true, Kill: []string{"a LivenessProbe"}}},
		{"ephemeral once", podWith(ephemeral), list{a, b}, nil, brief{Ephemeral: []int{0}}},
		{"ephemeral never again", podWith(ephemeral), list{a, b, had("debug", exited, 1)}, nil, brief{}},
		{"being deleted", podWith(deleted), list{a, had("b", exited, 1)}, nil, brief{}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox("new", 0, true)}, Containers: c.containers}
			if diff := cmp.Diff(c.want, of(Compute(c.pod, s, c.probes))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestComputeInit(t *testing.T) {
	t.Parallel()
	a, b := had("a", running, 0), had("b", running, 0)
	never := policy(v1.RestartPolicyNever)
	oom := had("i", exited, 0)
	oom.Reason = "OOMKilled"
	type list = []*pod.ContainerStatus
	cases := []struct {
		name       string
		pod        *v1.Pod
		containers list
		probes     Probes
		want       brief
	}{
		{"none started", podWith(inits("i", "j")), nil, nil, brief{Init: []int{0}}},
		{"first runs", podWith(inits("i", "j")), list{had("i", running, 0)}, nil, brief{}},
		{"first done", podWith(inits("i", "j")), list{had("i", exited, 0)}, nil, brief{Init: []int{1}}},
		{"first could not be started", podWith(inits("i", "j")), list{had("i", created, 0)}, nil, brief{Init: []int{0}}},
		{"first failed", podWith(inits("i", "j")), list{had("i", exited, 1)}, nil, brief{Init: []int{0}}},
		{"first out of memory", podWith(inits("i", "j")), list{oom}, nil, brief{Init: []int{0}}},
		{"first failed, Never", podWith(never, inits("i", "j")), list{had("i", exited, 1)}, nil, brief{KillPod: true}},
		{"first unknown", podWith(inits("i", "j")), list{had("i", unknown, 0)}, nil, brief{Init: []int{0}, Kill: []string{"i Unknown"}}},
		{"both done", podWith(inits("i", "j")), list{had("j", exited, 0), had("i", exited, 0)}, nil, brief{Start: []int{0, 1}}},
		{"of an earlier sandbox", podWith(inits("i")), list{inSandbox(had("i", exited, 0), "old")}, nil, brief{Init: []int{0}}},
		{"long done and pruned", podWith(inits("i")), list{a, b}, nil, brief{}},
		{"mains have ended", podWith(inits("i")), list{had("a", exited, 1), had("b", exited, 1), had("i", exited, 0)}, nil, brief{Start: []int{0, 1}}},
		{"ephemeral before the end", podWith(ephemeral, inits("i")), list{had("i", running, 0)}, nil, brief{Ephemeral: []int{0}}},

		{"sidecar runs", podWith(inits("s", "j")), list{had("s", running, 0)}, nil, brief{Init: []int{1}}},
		{"sidecar waits for its startup probe", podWith(inits("s", "j"), startupProbe), list{had("s", running, 0)}, nil, brief{}},
		{"sidecar has started", podWith(inits("s", "j"), startupProbe), list{had("s", running, 0)}, failing(Startup), brief{Init: []int{1}}},
		{"sidecar failed to start", podWith(inits("s", "j"), startupProbe), list{had("s", running, 0)}, failing(Startup, "s"), brief{Init: []int{0}, Kill: []string{"s StartupProbe"}}},
		{"sidecar died before the next", podWith(inits("s", "j")), list{had("s", exited, 1)}, nil, brief{Init: []int{0}}},
		{"sidecar died beside the next", podWith(inits("s", "j")), list{had("j", exited, 0), had("s", exited, 0)}, nil, brief{Init: []int{0}, Start: []int{0, 1}}},
		{"last sidecar runs", podWith(inits("i", "s")), list{had("s", running, 0), had("i", exited, 0)}, nil, brief{Start: []int{0, 1}}},
		{"sidecar died beside the mains", podWith(inits("i", "s")), list{a, b, had("s", exited, 1), had("i", exited, 0)}, nil, brief{Init: []int{1}}},
		{"sidecar died beside mains that have ended", podWith(inits("i", "s")), list{had("a", exited, 1), had("b", exited, 1), had("s", exited, 1), had("i", exited, 0)}, nil, brief{Init: []int{1}, Start: []int{0, 1}}},
		{"mains of an earlier sandbox", podWith(inits("i", "s")), list{inSandbox(had("a", exited, 1), "old"), had("s", exited, 1), had("i", exited, 0)}, nil, brief{Init: []int{1}}},
		{"init long done and pruned, mains have ended", podWith(inits("i")), list{had("a", exited, 1), had("b", exited, 1)}, nil, brief{Start: []int{0, 1}}},
		{"sidecar died, Never", podWith(never, inits("s")), list{a, b, had("s", exited, 1)}, nil, brief{Init: []int{0}}},
		{"sidecar with a new image", podWith(inits("s")), list{a, b, withHash(had("s", running, 0), 1)}, nil, brief{Init: []int{0}, Kill: []string{"s Changed"}}},
		{"sidecars alone do not keep a pod", podWith(never, inits("s")), list{had("a", exited, 0), had("b", exited, 0), had("s", running, 0)}, nil, brief{KillPod: true}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox("new", 0, true)}, Containers: c.containers}
			if diff := cmp.Diff(c.want, of(Compute(c.pod, s, c.probes))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestBackoffLimit: a Job's pod fails when the restarts and last failures of its containers together exceed the limit,
// also if other containers still run.
func TestBackoffLimit(t *testing.T) {
	t.Parallel()
	job := func(limit string, options ...podOption) *v1.Pod {
		p := podWith(append(options, policy(v1.RestartPolicyOnFailure))...)
		p.Annotations = map[string]string{pod.BackoffLimitAnnotation: limit}
		return p
	}
	jobNever := func(limit string, options ...podOption) *v1.Pod {
		p := job(limit)
		policy(v1.RestartPolicyNever)(p)
		for i := range p.Spec.Containers {
			restartsAll(p.Spec.Containers[i].Name, v1.ContainerRestartRuleOnExitCodesOpNotIn, 0)(p)
		}
		for _, o := range options {
			o(p)
		}
		return p
	}
	const in = v1.ContainerRestartRuleOnExitCodesOpIn
	again := func(c *pod.ContainerStatus, restarts int) *pod.ContainerStatus { c.RestartCount = restarts; return c }
	together := func(c *pod.ContainerStatus, restarts string) *pod.ContainerStatus {
		c.Annotations = map[string]string{pod.PodRestartsAnnotation: restarts}
		return again(c, 9)
	}
	bothRules := jobNever("2", func(p *v1.Pod) {
		b := manifest.Container(p, "b")
		alone := v1.ContainerRestartRule{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: in, Values: []int32{42}}}
		b.RestartPolicyRules = append([]v1.ContainerRestartRule{alone}, b.RestartPolicyRules...)
	})
	ownPolicy := jobNever("2", restartsAll("b", in, 88), func(p *v1.Pod) {
		manifest.Container(p, "b").RestartPolicy = new(v1.ContainerRestartPolicyOnFailure)
	})
	const why = "its containers failed more often than the backoffLimit of "
	for _, c := range []struct {
		name       string
		pod        *v1.Pod
		containers []*pod.ContainerStatus
		why        string // "" if the pod has not failed
	}{
		{"runs", job("0"), []*pod.ContainerStatus{had("a", running, 0), had("b", running, 0)}, ""},
		{"nothing there", job("0"), nil, ""},
		{"the first failure of none", job("0"), []*pod.ContainerStatus{had("a", exited, 3), had("b", running, 0)}, why + "0, container a ended with status 3"},
		{"as often as it may", job("2"), []*pod.ContainerStatus{again(had("a", exited, 3), 1), had("b", running, 0)}, ""},
		{"once more", job("2"), []*pod.ContainerStatus{again(had("a", exited, 3), 2), had("b", running, 0)}, why + "2, container a ended with status 3"},
		{"together", job("2"), []*pod.ContainerStatus{again(had("a", running, 0), 1), again(had("b", running, 0), 2)}, why + "2"},
		{"the last pod of a Job with Never", jobNever("2"), []*pod.ContainerStatus{again(had("a", exited, 3), 1), again(had("b", exited, 143), 1)}, ""},
		{"one pod more", jobNever("2"), []*pod.ContainerStatus{again(had("a", exited, 3), 2), again(had("b", exited, 143), 2)}, why + "2, container b ended with status 143"},
		{"a sidecar of a Job with Never", jobNever("2", inits("s")), []*pod.ContainerStatus{had("a", running, 0), had("b", running, 0), again(had("s", exited, 1), 9)}, ""},
		{"a container of a Job with Never that has Always", jobNever("2", own("b", v1.ContainerRestartPolicyAlways, "")), []*pod.ContainerStatus{had("a", running, 0), again(had("b", exited, 1), 9)}, ""},
		{"an init container of a Job with Never that has OnFailure", jobNever("2", inits("i"), own("i", v1.ContainerRestartPolicyOnFailure, "")), []*pod.ContainerStatus{again(had("i", exited, 1), 9)}, ""},
		{"a container that a rule restarts alone", jobNever("2", own("b", v1.ContainerRestartPolicyNever, in, 42)), []*pod.ContainerStatus{had("a", running, 0), again(had("b", exited, 42), 9)}, ""},
		{"its last end", jobNever("0", own("b", v1.ContainerRestartPolicyNever, in, 42)), []*pod.ContainerStatus{had("a", running, 0), again(had("b", exited, 1), 9)}, why + "0, container b ended with status 1"},
		{"a container with both rules, alone", bothRules, []*pod.ContainerStatus{had("a", running, 0), together(had("b", running, 0), "2")}, ""},
		{"its last end alone", bothRules, []*pod.ContainerStatus{had("a", running, 0), together(had("b", exited, 42), "2")}, ""},
		{"its end that restarts all", bothRules, []*pod.ContainerStatus{had("a", running, 0), together(had("b", exited, 1), "1")}, ""},
		{"its end that restarts all, once more", bothRules, []*pod.ContainerStatus{had("a", running, 0), together(had("b", exited, 1), "2")}, why + "2, container b ended with status 1"},
		{"a container with OnFailure of its own and a rule for all", ownPolicy, []*pod.ContainerStatus{had("a", running, 0), together(had("b", exited, 1), "2")}, ""},
		{"its rule", ownPolicy, []*pod.ContainerStatus{had("a", running, 0), together(had("b", exited, 88), "1")}, ""},
		{"its rule once more", ownPolicy, []*pod.ContainerStatus{had("a", running, 0), together(had("b", exited, 88), "2")}, why + "2, container b ended with status 88"},
		{"stopped for a new image", jobNever("0"), []*pod.ContainerStatus{replaced(had("a", exited, 143)), had("b", running, 0)}, ""},
		{"stopped for a new image, OnFailure", job("0"), []*pod.ContainerStatus{replaced(had("a", exited, 143)), had("b", running, 0)}, ""},
		{"an init container", job("0", inits("i")), []*pod.ContainerStatus{had("i", exited, 1)}, why + "0, container i ended with status 1"},
		{"done with the last try", job("2"), []*pod.ContainerStatus{again(had("a", exited, 0), 2), had("b", exited, 0)}, ""},
		{"no number", job("many"), []*pod.ContainerStatus{again(had("a", exited, 3), 9), had("b", running, 0)}, ""},
		{"no limit", podWith(policy(v1.RestartPolicyOnFailure)), []*pod.ContainerStatus{again(had("a", exited, 3), 9), had("b", running, 0)}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox("new", 0, true)}, Containers: c.containers}
			actions, view := Compute(c.pod, s, nil), Observe(c.pod, s, nil)
			if c.why == "" {
				if view.Phase == v1.PodFailed || view.Reason != "" {
					t.Errorf("got %s, %s", view.Phase, view.Reason)
				}
				return
			}
			if diff := cmp.Diff(brief{KillPod: true}, of(actions)); diff != "" || actions.SandboxReason != c.why {
				t.Errorf("got %s, want %s; %s", actions.SandboxReason, c.why, diff)
			}
			if view.Phase != v1.PodFailed || view.Reason != "BackoffLimitExceeded" || view.Why != c.why {
				t.Errorf("got %s, %s, %s", view.Phase, view.Reason, view.Why)
			}
		})
	}
}

// TestRestartCount: restarts of a Job's containers count against its backoffLimit, so a new image adds none.
func TestRestartCount(t *testing.T) {
	t.Parallel()
	plain, job := podWith(), podWith(policy(v1.RestartPolicyOnFailure))
	job.Annotations = map[string]string{pod.BackoffLimitAnnotation: "0"}
	for _, c := range []struct {
		pod  *v1.Pod
		last *pod.ContainerStatus
		want int
	}{
		{plain, had("a", exited, 1), 1},
		{plain, replaced(had("a", exited, 1)), 1},
		{job, had("a", exited, 1), 1},
		{job, replaced(had("a", exited, 1)), 0},
	} {
		if got := RestartCount(c.pod, c.last); got != c.want {
			t.Errorf("%v, replaced %t: got %d, want %d", c.pod.Annotations, c.last.Replaced, got, c.want)
		}
	}
}
