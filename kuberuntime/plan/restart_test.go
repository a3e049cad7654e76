package plan

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// own sets the restart policy of a container, and a rule for the exit codes if operator is not empty.
func own(name string, policy v1.ContainerRestartPolicy, operator v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) podOption {
	return func(p *v1.Pod) {
		for _, list := range [][]v1.Container{p.Spec.InitContainers, p.Spec.Containers} {
			for i := range list {
				if list[i].Name != name {
					continue
				}
				list[i].RestartPolicy = &policy
				if operator != "" {
					on := &v1.ContainerRestartRuleOnExitCodes{Operator: operator, Values: codes}
					list[i].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart, ExitCodes: on}}
				}
			}
		}
	}
}

// TestContainerRestartPolicies covers the actions and the phase of pods whose containers have their own restart
// policies.
func TestContainerRestartPolicies(t *testing.T) {
	t.Parallel()
	const (
		always, onFailure, never = v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever
		in, notIn                = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	)
	podNever := policy(v1.RestartPolicyNever)
	oom := had("i", exited, 0)
	oom.Reason = pod.OOMKilled
	runs := had("b", running, 0)
	type list = []*pod.ContainerStatus
	cases := []struct {
		name       string
		pod        *v1.Pod
		dead       bool // the sandbox is dead
		containers list
		probes     Probes
		want       brief
		phase      v1.PodPhase
	}{
		{"Never in a pod with Always", podWith(own("a", never, "")), false, list{had("a", exited, 1), runs}, nil, brief{}, v1.PodRunning},
		{"Always in a pod with Never", podWith(podNever, own("a", always, "")), false, list{had("a", exited, 0), had("b", exited, 0)}, nil, brief{Start: []int{0}}, v1.PodRunning},
		{"OnFailure that failed", podWith(podNever, own("a", onFailure, "")), false, list{had("a", exited, 1), runs}, nil, brief{Start: []int{0}}, v1.PodRunning},
		{"OnFailure that succeeded", podWith(own("a", onFailure, "")), false, list{had("a", exited, 0), runs}, nil, brief{}, v1.PodRunning},
		{"all Never have succeeded", podWith(own("a", never, ""), own("b", never, "")), false, list{had("a", exited, 0), had("b", exited, 0)}, nil, brief{KillPod: true}, v1.PodSucceeded},
		{"all Never, and one failed", podWith(own("a", never, ""), own("b", never, "")), false, list{had("a", exited, 0), had("b", exited, 2)}, nil, brief{KillPod: true}, v1.PodFailed},
		{"a code that a rule has", podWith(podNever, own("a", never, in, 7, 42)), false, list{had("a", exited, 42), had("b", exited, 0)}, nil, brief{Start: []int{0}}, v1.PodRunning},
		{"a code that no rule has", podWith(podNever, own("a", never, in, 7, 42)), false, list{had("a", exited, 8), had("b", exited, 0)}, nil, brief{KillPod: true}, v1.PodFailed},
		{"a code but those", podWith(podNever, own("a", never, notIn, 0, 3)), false, list{had("a", exited, 8), runs}, nil, brief{Start: []int{0}}, v1.PodRunning},
		{"one of the codes left out", podWith(podNever, own("a", never, notIn, 0, 3)), false, list{had("a", exited, 3), runs}, nil, brief{}, v1.PodRunning},
		{"a rule that does not match leaves the policy", podWith(podNever, own("a", onFailure, in, 0)), false, list{had("a", exited, 1), runs}, nil, brief{Start: []int{0}}, v1.PodRunning},
		{"liveness of a container with a rule", podWith(podNever, own("a", never, in, 9)), false, list{had("a", running, 0), runs}, failing(Liveness, "a"), brief{Start: []int{0}, Kill: []string{"a LivenessProbe"}}, v1.PodRunning},
		{"liveness of a container with Never", podWith(own("a", never, "")), false, list{had("a", running, 0), runs}, failing(Liveness, "a"), brief{Kill: []string{"a LivenessProbe"}}, v1.PodRunning},

		{"a new image of one with Never was not pulled", podWith(podNever), false, list{replaced(had("a", exited, 143)), had("b", exited, 0)}, nil, brief{Start: []int{0}}, v1.PodRunning},
		{"one with Never had succeeded before its new image", podWith(podNever), false, list{withHash(had("a", exited, 0), 1), runs}, nil, brief{}, v1.PodRunning},
		{"an init container with Never failed", podWith(inits("i"), own("i", never, "")), false, list{had("i", exited, 1)}, nil, brief{KillPod: true}, v1.PodFailed},
		{"an init container with OnFailure failed", podWith(podNever, inits("i"), own("i", onFailure, "")), false, list{had("i", exited, 1)}, nil, brief{Init: []int{0}}, v1.PodPending},
		{"an init container with a rule failed", podWith(podNever, inits("i"), own("i", never, in, 5)), false, list{had("i", exited, 5)}, nil, brief{Init: []int{0}}, v1.PodPending},
		{"an init container that succeeded is done, whatever its rules", podWith(podNever, inits("i"), own("i", never, in, 0)), false, list{had("i", exited, 0)}, nil, brief{Start: []int{0, 1}}, v1.PodPending},
		{"an init container with OnFailure was killed for memory", podWith(podNever, inits("i"), own("i", onFailure, "")), false, list{oom}, nil, brief{Init: []int{0}}, v1.PodPending},
		{"a sidecar starts again, whatever its rules", podWith(podNever, inits("s"), own("s", always, in, 9)), false, list{had("a", running, 0), runs, had("s", exited, 1)}, nil, brief{Init: []int{0}}, v1.PodRunning},

		{"a dead sandbox of containers with Never", podWith(own("a", never, ""), own("b", never, "")), true, list{had("a", exited, 137), had("b", exited, 137)}, nil, brief{KillPod: true, Attempt: 1}, v1.PodFailed},
		{"a dead sandbox where one has Always", podWith(podNever, own("a", always, "")), true, list{had("a", exited, 137), had("b", exited, 137)}, nil, brief{KillPod: true, CreateSandbox: true, Attempt: 1, Start: []int{0}}, v1.PodRunning},
		{"a dead sandbox where no rule matches", podWith(podNever, own("a", never, in, 5)), true, list{had("a", exited, 137), had("b", exited, 137)}, nil, brief{KillPod: true, Attempt: 1}, v1.PodFailed},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox("new", 0, !c.dead)}, Containers: c.containers}
			if diff := cmp.Diff(c.want, of(Compute(c.pod, s, c.probes))); diff != "" {
				t.Error(diff)
			}
			if got := Observe(c.pod, s, c.probes).Phase; got != c.phase {
				t.Errorf("got the phase %s, want %s", got, c.phase)
			}
		})
	}
}

// restartsAll gives a container a rule by which some of its ends restart all containers.
func restartsAll(name string, operator v1.ContainerRestartRuleOnExitCodesOperator, codes ...int32) podOption {
	return func(p *v1.Pod) {
		own(name, v1.ContainerRestartPolicyNever, operator, codes...)(p)
		manifest.Container(p, name).RestartPolicyRules[0].Action = v1.ContainerRestartRuleActionRestartAllContainers
	}
}

// TestRestartAllContainers follows a pod from the end that restarts all of its containers until they run again.
func TestRestartAllContainers(t *testing.T) {
	t.Parallel()
	const in, notIn = v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn
	never := policy(v1.RestartPolicyNever)
	again := func(name string, state runtimeapi.ContainerState, exit int) *pod.ContainerStatus {
		c := had(name, state, exit)
		c.ID, c.Annotations = name+" again", map[string]string{pod.PodRestartsAnnotation: "1"}
		return c
	}
	work := podWith(never, inits("i"), restartsAll("a", in, 88))
	job := podWith(never, restartsAll("a", notIn, 0), restartsAll("b", notIn, 0))
	end, first, killed := had("a", exited, 88), had("i", exited, 0), had("b", exited, 143)
	type list = []*pod.ContainerStatus
	for _, c := range []struct {
		name       string
		pod        *v1.Pod
		dead       bool // the sandbox is dead
		containers list
		probes     Probes
		want       brief
		phase      v1.PodPhase
	}{
		{"the end kills the others", work, false, list{end, had("b", running, 0), first}, nil, brief{Kill: []string{"b RestartAllContainers"}}, v1.PodPending},
		{"also if the others are younger", work, false, list{had("b", running, 0), end, first}, nil, brief{Kill: []string{"b RestartAllContainers"}}, v1.PodPending},
		{"the init containers run again", work, false, list{end, killed, first}, nil, brief{Init: []int{0}}, v1.PodPending},
		{"also if the others had succeeded", work, false, list{end, had("b", exited, 0), first}, nil, brief{Init: []int{0}}, v1.PodPending},
		{"an init container runs", work, false, list{again("i", running, 0), end, killed, first}, nil, brief{}, v1.PodPending},
		{"an init container fails the second time", work, false, list{again("i", exited, 1), end, killed, first}, nil, brief{KillPod: true}, v1.PodFailed},
		{"the main containers follow", work, false, list{again("i", exited, 0), end, killed, first}, nil, brief{Start: []int{0, 1}}, v1.PodPending},
		{"one could not be created", work, false, list{again("a", running, 0), again("i", exited, 0), end, killed}, nil, brief{Start: []int{1}}, v1.PodPending},
		{"all run again", work, false, list{again("a", running, 0), again("b", running, 0), again("i", exited, 0), end}, nil, brief{}, v1.PodRunning},
		{"all run again, and the end was collected", work, false, list{again("a", running, 0), again("b", running, 0), again("i", exited, 0)}, nil, brief{}, v1.PodRunning},
		{"and end", work, false, list{again("a", exited, 0), again("b", exited, 0), again("i", exited, 0), end}, nil, brief{KillPod: true}, v1.PodSucceeded},
		{"the second time", work, false, list{again("a", exited, 88), again("b", running, 0), again("i", exited, 0), end, killed}, nil, brief{Kill: []string{"b RestartAllContainers"}}, v1.PodPending},
		{"another status", work, false, list{had("a", exited, 1), had("b", exited, 0), first}, nil, brief{KillPod: true}, v1.PodFailed},
		{"in another sandbox", work, false, list{had("a", running, 0), had("b", running, 0), inSandbox(had("a", exited, 88), "old"), first}, nil, brief{}, v1.PodRunning},
		{"in a dead sandbox", work, true, list{end, had("b", exited, 137), first}, nil, brief{KillPod: true, CreateSandbox: true, Attempt: 1, Init: []int{0}}, v1.PodPending},
		{"one has a new image", job, false, list{withHash(had("a", running, 0), 1), had("b", running, 0)}, nil, brief{Start: []int{0}, Kill: []string{"a Changed"}}, v1.PodRunning},
		{"one was restarted for a new image", job, false, list{had("a", running, 0), had("b", running, 0), had("a", exited, 143)}, nil, brief{}, v1.PodRunning},
		{"a new image could not be pulled", job, false, list{replaced(had("a", exited, 143)), had("b", running, 0)}, nil, brief{Start: []int{0}}, v1.PodRunning},
		{"the new image failed", job, false, list{had("a", exited, 3), had("b", running, 0), had("a", exited, 143)}, nil, brief{Kill: []string{"b RestartAllContainers"}}, v1.PodPending},
		{"it had failed before its new image", job, false, list{withHash(had("a", exited, 3), 1), had("b", running, 0)}, nil, brief{Kill: []string{"b RestartAllContainers"}}, v1.PodPending},
		{"a Job's container failed", job, false, list{had("a", exited, 3), had("b", running, 0)}, nil, brief{Kill: []string{"b RestartAllContainers"}}, v1.PodPending},
		{"a Job's containers start again", job, false, list{had("a", exited, 3), killed}, nil, brief{Start: []int{0, 1}}, v1.PodPending},
		{"a Job's container succeeded", job, false, list{had("a", exited, 0), had("b", running, 0)}, nil, brief{}, v1.PodRunning},
		{"a Job's container fails its liveness probe", job, false, list{had("a", running, 0), had("b", exited, 0)}, failing(Liveness, "a"), brief{Kill: []string{"a LivenessProbe"}}, v1.PodRunning},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox("new", 0, !c.dead)}, Containers: c.containers}
			if diff := cmp.Diff(c.want, of(Compute(c.pod, s, c.probes))); diff != "" {
				t.Error(diff)
			}
			if got := Observe(c.pod, s, c.probes).Phase; got != c.phase {
				t.Errorf("got the phase %s, want %s", got, c.phase)
			}
		})
	}
}

func TestMeantToEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		pod  *v1.Pod
		want bool
	}{
		{podWith(), false},
		{podWith(policy(v1.RestartPolicyNever)), true},
		{podWith(policy(v1.RestartPolicyNever), own("a", v1.ContainerRestartPolicyAlways, "")), false},
		{podWith(own("a", v1.ContainerRestartPolicyNever, "")), false},
		{podWith(own("a", v1.ContainerRestartPolicyNever, ""), own("b", v1.ContainerRestartPolicyOnFailure, "")), true},
	} {
		if got := MeantToEnd(c.pod); got != c.want {
			t.Errorf("got %v for %v", got, c.pod.Spec.Containers)
		}
	}
}
