package sandbox

import (
	"context"
	"fmt"
	"slices"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/host"
	podnetwork "github.com/crishim/crishim/shim/network"
	"github.com/crishim/crishim/shim/state"
)

// networkPod returns the pod for a network plugin. Its namespace path is valid until done is called.
func networkPod(sb state.FoundSandbox) (p podnetwork.Pod, done func()) {
	done = func() {}
	p = podnetwork.Pod{ID: sb.Detail.ID, Metadata: sb.Metadata, Annotations: sb.Annotations, Ports: sb.Ports}
	if sb.Detail.NetworkSettings == nil {
		return p, done
	}
	if sb.Detail.State.Running {
		p.NetNS, done = host.NetNS(sb.Detail.ID, sb.Detail.NetworkSettings.SandboxKey, sb.Detail.State.Pid)
	}
	// IPv4 comes first. Newer engines report addresses only in Networks.
	var v4, v6 []string
	for _, n := range sb.Detail.NetworkSettings.Networks {
		if n != nil && n.IPAddress != "" {
			v4 = append(v4, n.IPAddress)
		}
		if n != nil && n.GlobalIPv6Address != "" {
			v6 = append(v6, n.GlobalIPv6Address)
		}
	}
	slices.Sort(v4)
	slices.Sort(v6)
	p.EngineIPs = append(v4, v6...)
	return p, done
}

func (s *Service) tearDown(ctx context.Context, sb state.FoundSandbox) error {
	pod, done := networkPod(sb)
	defer done()
	if err := s.plugin(sb).TearDown(ctx, pod); err != nil {
		return fmt.Errorf("tear down the network: %w", err)
	}
	return nil
}

func (s *Service) plugin(sb state.FoundSandbox) podnetwork.Plugin {
	return s.Networks.ForExisting(sb.Network, string(sb.Detail.HostConfig.NetworkMode))
}

// networkStatus returns the sandbox's addresses (dockershim: getIPs).
func (s *Service) networkStatus(ctx context.Context, sb state.FoundSandbox) *runtimeapi.PodSandboxNetworkStatus {
	status := &runtimeapi.PodSandboxNetworkStatus{}
	if !sb.Detail.State.Running {
		return status
	}
	pod, done := networkPod(sb)
	defer done()
	addresses, err := s.plugin(sb).Addresses(ctx, pod)
	if err != nil {
		s.Log.Warn("the addresses of a pod sandbox are not known", "id", sb.Detail.ID, "err", err)
		return status
	}
	for i, a := range addresses {
		if i == 0 {
			status.Ip = a
		} else {
			status.AdditionalIps = append(status.AdditionalIps, &runtimeapi.PodIP{Ip: a})
		}
	}
	return status
}

// CheckNetworks logs pods whose network no longer matches its set-up. Only a new pod repairs that.
func (s *Service) CheckNetworks(ctx context.Context) {
	list, err := s.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		s.Log.Debug("the networks of pods cannot be checked", "err", err)
		return
	}
	for _, p := range list.GetItems() {
		sb, err := state.FindSandbox(ctx, s.Engine, p.GetId())
		if err != nil {
			continue
		}
		checker, ok := s.plugin(sb).(podnetwork.Checker)
		if !ok || !sb.Detail.State.Running {
			continue
		}
		pod, done := networkPod(sb)
		err = checker.Check(ctx, pod)
		done()
		if err != nil && ctx.Err() == nil {
			s.Log.Warn("the network of a pod is not as its plugin left it", "id", p.GetId(), "pod", p.GetMetadata().GetName(), "err", err)
		}
	}
}
