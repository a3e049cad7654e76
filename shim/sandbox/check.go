package sandbox

import (
	"context"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	podnetwork "github.com/crishim/crishim/shim/network"
)

// CheckNetworks asks the plugins of the running sandboxes whether the networks
// are as they left them, and logs where they are not. Only a new pod mends that,
// and whether it is worth one is not for the shim to say.
func (s *Service) CheckNetworks(ctx context.Context) {
	list, err := s.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		s.log.Debug("the networks of pods cannot be checked", "err", err)
		return
	}
	for _, p := range list.GetItems() {
		b, err := s.find(ctx, p.GetId())
		if err != nil {
			continue
		}
		checker, ok := s.plugin(b).(podnetwork.Checker)
		if !ok || !b.running() {
			continue
		}
		pod, done := b.pod()
		err = checker.Check(ctx, pod)
		done()
		if err != nil && ctx.Err() == nil {
			s.log.Warn("the network of a pod is not as its plugin left it", "id", p.GetId(), "pod", p.GetMetadata().GetName(), "err", err)
		}
	}
}
