package plan

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// ShouldRestart reports whether to start a container that does not run. It is the kubelet's ShouldContainerBeRestarted.
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
	return restartsAfter(p, c, status.ExitCode)
}

// Policy returns a container's own restart policy, or the pod's. A sidecar's is Always.
func Policy(p *v1.Pod, c *v1.Container) v1.RestartPolicy {
	if c.RestartPolicy != nil {
		return v1.RestartPolicy(*c.RestartPolicy)
	}
	return p.Spec.RestartPolicy
}

// MeantToEnd reports whether a pod has no container that always restarts.
func MeantToEnd(p *v1.Pod) bool {
	return !slices.ContainsFunc(p.Spec.Containers, func(c v1.Container) bool { return Policy(p, &c) == v1.RestartPolicyAlways })
}

// Restartable reports whether a container restarts after at least some exit codes. It is the kubelet's
// IsContainerRestartable.
func Restartable(p *v1.Pod, c *v1.Container) bool {
	return Policy(p, c) != v1.RestartPolicyNever || len(c.RestartPolicyRules) > 0
}

// restartsAfter reports whether a container restarts after an exit code. It is the kubelet's ContainerShouldRestart.
// The container's restart rules take precedence over its policy.
func restartsAfter(p *v1.Pod, c *v1.Container, exitCode int) bool {
	for _, rule := range c.RestartPolicyRules {
		listed := slices.Contains(rule.ExitCodes.Values, int32(exitCode))
		if listed == (rule.ExitCodes.Operator == v1.ContainerRestartRuleOnExitCodesOpIn) {
			return true // Restart is the only action of a rule
		}
	}
	switch Policy(p, c) {
	case v1.RestartPolicyNever:
		return false
	case v1.RestartPolicyOnFailure:
		return exitCode != 0
	}
	return true
}

// initRestarts reports whether a failed init container restarts. The exit code may be 0 if the kernel has killed only a
// child process.
func initRestarts(p *v1.Pod, c *v1.Container, status *pod.ContainerStatus) bool {
	const killed = 137
	return restartsAfter(p, c, cmp.Or(status.ExitCode, killed))
}
