package plan

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// TestObserve covers the phase, the readiness and the ready containers of a pod.
func TestObserve(t *testing.T) {
	t.Parallel()
	a, b := had("a", running, 0), had("b", running, 0)
	for _, c := range []*pod.ContainerStatus{a, b} {
		c.StartedAt = time.Unix(1, 0)
	}
	never, onFailure := policy(v1.RestartPolicyNever), policy(v1.RestartPolicyOnFailure)
	readiness := func(p *v1.Pod) { p.Spec.Containers[1].ReadinessProbe = &v1.Probe{} }
	type list = []*pod.ContainerStatus
	oom := had("i", exited, 0)
	oom.Reason = pod.OOMKilled
	paused := had("b", running, 0)
	paused.Annotations = map[string]string{kube.AnnotationPaused: "true"}
	cases := []struct {
		name       string
		pod        *v1.Pod
		containers list
		probes     Probes
		want       string // phase, whether ready, ready containers
	}{
		{"nothing", podWith(), nil, nil, "Pending -"},
		{"all run", podWith(), list{a, b}, nil, "Running ready a b"},
		{"one missing", podWith(), list{a}, nil, "Pending - a"},
		{"one ended and comes again", podWith(), list{a, had("b", exited, 1)}, nil, "Running - a"},
		{"one is paused", podWith(), list{a, paused}, nil, "Running - a"},
		{"a probe has not said yes", podWith(readiness), list{a, b}, nil, "Running - a"},
		{"a probe has said yes", podWith(readiness), list{a, b}, failing(Readiness), "Running ready a b"},
		{"an init container runs", podWith(inits("i")), list{had("i", running, 0)}, nil, "Pending -"},
		{"an init container is done", podWith(inits("i")), list{a, b, had("i", exited, 0)}, nil, "Running ready i a b"},
		{"an init container failed", podWith(inits("i")), list{had("i", exited, 1)}, nil, "Pending -"},
		{"an init container failed for good", podWith(never, inits("i")), list{had("i", exited, 1)}, nil, "Failed -"},
		{"a sidecar ended", podWith(inits("s")), list{a, b, had("s", exited, 0)}, nil, "Running - a b"},
		{"a sidecar starts", podWith(inits("s"), startupProbe), list{had("s", running, 0)}, nil, "Pending -"},
		{"a sidecar runs", podWith(inits("s"), startupProbe), list{a, b, had("s", running, 0)}, failing(Startup), "Running ready s a b"},
		{"an ephemeral container does not count", podWith(ephemeral), list{a, b, had("debug", exited, 1)}, nil, "Running ready a b"},
		{"all ended well", podWith(never), list{had("a", exited, 0), had("b", exited, 0)}, nil, "Succeeded -"},
		{"one ended badly", podWith(never), list{had("a", exited, 0), had("b", exited, 2)}, nil, "Failed -"},
		{"one ended badly and comes again", podWith(onFailure), list{had("a", exited, 0), had("b", exited, 2)}, nil, "Running -"},
		{"a sidecar runs yet", podWith(never, inits("s")), list{had("a", exited, 0), had("b", exited, 0), had("s", running, 0)}, nil, "Running - s"},
		{"a sidecar was stopped", podWith(never, inits("s")), list{had("a", exited, 0), had("b", exited, 0), had("s", exited, 137)}, nil, "Succeeded -"},
		{"a sidecar runs before the others", podWith(inits("s", "i")), list{had("s", running, 0), had("i", running, 0)}, nil, "Pending - s"},
		{"an init container was killed for memory", podWith(inits("i")), list{oom}, nil, "Pending -"},
		{"an init container was killed for memory for good", podWith(never, inits("i")), list{oom}, nil, "Failed -"},
		{"all ended and come again", podWith(), list{had("a", exited, 0), had("b", exited, 0)}, nil, "Running -"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox("new", 0, true)}, Containers: c.containers}
			view := Observe(c.pod, s, c.probes)
			got := []string{string(view.Phase), map[bool]string{true: "ready", false: "-"}[view.Ready]}
			for _, one := range view.Containers {
				if one.Ready {
					got = append(got, one.Container.Name)
				}
			}
			if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestObserveDeadSandboxes: a pod with restart policy Never fails if its sandbox dies before all containers exist, as
// soon as no container runs.
func TestObserveDeadSandboxes(t *testing.T) {
	t.Parallel()
	type list = []*pod.ContainerStatus
	cases := []struct {
		name       string
		policy     v1.RestartPolicy
		containers list
		want       v1.PodPhase
	}{
		{"after the init container", v1.RestartPolicyNever, list{had("i", exited, 0)}, v1.PodFailed},
		{"between two containers", v1.RestartPolicyNever, list{had("a", exited, 0), had("i", exited, 0)}, v1.PodFailed},
		{"one is to be stopped yet", v1.RestartPolicyNever, list{had("a", running, 0), had("i", exited, 0)}, v1.PodPending},
		{"before any container", v1.RestartPolicyNever, nil, v1.PodPending},
		{"another follows", v1.RestartPolicyOnFailure, list{had("i", exited, 0)}, v1.PodPending},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := &pod.Status{Sandboxes: []*runtimeapi.PodSandboxStatus{sandbox("new", 0, false)}, Containers: c.containers}
			view := Observe(podWith(policy(c.policy), inits("i")), s, nil)
			if view.Phase != c.want || (view.Why != "") != (c.want == v1.PodFailed) {
				t.Errorf("got %s (%s), want %s", view.Phase, view.Why, c.want)
			}
		})
	}
}
