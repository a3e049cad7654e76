package plan

import (
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
	v1 "k8s.io/api/core/v1"
)

// sandboxChange is the verdict on a pod's sandbox.
type sandboxChange struct {
	create  bool
	attempt uint32
	id      string // of the newest sandbox, if any
	reason  string
}

// changedSandbox reports whether a new sandbox is needed and with which attempt.
func changedSandbox(p *v1.Pod, s *pod.Status) sandboxChange {
	newest := s.Sandbox()
	if newest == nil {
		return sandboxChange{create: true, reason: "the pod has no sandbox"}
	}
	ready := 0
	for _, sandbox := range s.Sandboxes {
		if sandbox.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready++
		}
	}
	again := func(reason string) sandboxChange {
		return sandboxChange{create: true, attempt: newest.GetMetadata().GetAttempt() + 1, id: newest.GetId(), reason: reason}
	}
	switch {
	case ready > 1:
		return again("the pod has several ready sandboxes")
	case newest.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY:
		return again("the sandbox is not ready")
	case newest.GetLinux().GetNamespaces().GetOptions().GetNetwork() != networkMode(p):
		return again("the pod's network namespace has changed")
	case !p.Spec.HostNetwork && newest.GetNetwork().GetIp() == "":
		return again("the sandbox has no address")
	}
	return sandboxChange{attempt: newest.GetMetadata().GetAttempt(), id: newest.GetId()}
}

func networkMode(p *v1.Pod) runtimeapi.NamespaceMode {
	if p.Spec.HostNetwork {
		return runtimeapi.NamespaceMode_NODE
	}
	return runtimeapi.NamespaceMode_POD
}
