package plan

import (
	"cmp"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// ShouldRestart reports whether to start a container that does not run, like the kubelet's ShouldContainerBeRestarted.
func ShouldRestart(p *v1.Pod, c *v1.Container, status *pod.ContainerStatus) bool {
	switch {
	case p.DeletionTimestamp != nil:
		return false
	case status == nil:
		return true
	case status.Running():
		return false
	case status.Unknown(), status.State == runtimeapi.ContainerState_CONTAINER_CREATED:
		return true
	}
	return restartsAfter(p, c, status)
}

// Policy returns a container's own restart policy, or the pod's. A sidecar's own policy is Always.
func Policy(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return p.Spec.RestartPolicy
}

// MeantToEnd reports whether a pod can end by itself: no regular container has the restart policy Always.
func MeantToEnd(p *v1.Pod) bool {
	return !slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return Policy(p, &c) == v1.RestartPolicyAlways })
}

// Restartable reports whether a container restarts after at least some exit codes, like the kubelet's
// IsContainerRestartable.
func Restartable(p *v1.Pod, c *v1.Container) bool {
	return Policy(p, c) != v1.RestartPolicyNever || len(c.RestartPolicyRules) > 0
}

// ruleFor returns the action of the first restart rule of a container that matches an exit code, or "".
func ruleFor(c *v1.Container, exitCode int) v1.ContainerRestartRuleAction {
	for _, rule := range c.RestartPolicyRules {
		listed := slices.Contains(rule.ExitCodes.Values, int32(exitCode))
		if listed == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return rule.Action
		}
	}
	return ""
}

// mayRestartAll reports whether some exit codes of a container restart all containers of the pod.
func mayRestartAll(c *v1.Container) bool {
	return slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
		return r.Action == v1.ContainerRestartRuleActionRestartAllContainers
	})
}

// mayRestartAlone reports whether a container restarts without the others after some exit codes.
func mayRestartAlone(p *v1.Pod, c *v1.Container) bool {
	return Policy(p, c) != v1.RestartPolicyNever || slices.ContainsFunc(c.RestartPolicyRules, func(r v1.ContainerRestartRule) bool {
		return r.Action == v1.ContainerRestartRuleActionRestart
	})
}

// sinceRestart counts how often all containers of a pod were restarted together in its current sandbox, including a
// restart that is due. since is the status without the containers from before the last of these restarts. old has the
// omitted containers that may still run. The kubelet removes the omitted containers instead, and with them their logs.
//
// Each container has the count at its creation in its PodRestartsAnnotation. A restart is due if the newest attempt of
// a container ended with an exit code that restarts all containers. Such an exit code of an older attempt does not
// count: a newer attempt with the same count means that the container was restarted alone, for a new image.
func sinceRestart(p *v1.Pod, s *pod.Status) (restarts int, since *pod.Status, old []*pod.ContainerStatus) {
	number := func(one *pod.ContainerStatus) int {
		n, _ := strconv.Atoi(one.Annotations[pod.PodRestartsAnnotation])
		return n
	}
	for _, c := range manifest.Containers(p) {
		for i, one := range s.Attempts(c.Name) {
			switch {
			case one.SandboxID != s.Sandbox().GetId():
			case i == 0 && one.Exited() && !one.Replaced && ruleFor(c, one.ExitCode) == v1.ContainerRestartRuleActionRestartAllContainers:
				restarts = max(restarts, number(one)+1)
			default:
				restarts = max(restarts, number(one))
			}
		}
	}
	if restarts == 0 {
		return 0, s, nil
	}
	kept := *s
	kept.Containers = nil
	for _, c := range s.Containers {
		ephemeral := slices.ContainsFunc(p.Spec.EphemeralContainers, func(e v1.EphemeralContainer) bool { return e.Name == c.Name })
		if ephemeral || number(c) >= restarts && c.SandboxID == s.Sandbox().GetId() {
			kept.Containers = append(kept.Containers, c)
		} else if c.MayRun() {
			old = append(old, c)
		}
	}
	return restarts, &kept, old
}

// restartsAfter reports whether a container restarts after it has ended, like the kubelet's ContainerShouldRestart. The
// container's restart rules take precedence over its policy. A container with policy Never that was stopped for a new
// image starts again, even if the first pull of that image fails. The kubelet does not start such a container after a
// failed pull.
func restartsAfter(p *v1.Pod, c *v1.Container, ended *pod.ContainerStatus) bool {
	if ruleFor(c, ended.ExitCode) != "" || ended.Replaced {
		return true
	}
	switch Policy(p, c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return ended.ExitCode != 0
	}
	return true
}

// initRestarts reports whether a failed init container restarts. Exit code 0 counts as 137, because the kernel may have
// killed only a child process when memory ran out.
func initRestarts(p *v1.Pod, c *v1.Container, status *pod.ContainerStatus) bool {
	const killed = 137
	ended := *status
	ended.ExitCode = cmp.Or(status.ExitCode, killed)
	return restartsAfter(p, c, &ended)
}
