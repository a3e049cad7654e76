package checkup

import (
	"context"
	"fmt"
	"net"
	"net/url"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/output"
)

// streaming asks for the URL of a stream, which starts nothing, and tries to
// reach the server behind it: exec, attach and port-forward depend on that.
func (p *patient) streaming(ctx context.Context) output.Finding {
	const check = "streaming"
	address, err := p.streamURL(ctx)
	if err != nil {
		return failed(check, err.Error(), "")
	}
	if address == "" {
		return skipped(check, "no ready pod to try it with")
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" {
		return warn(check, fmt.Sprintf("the runtime gives %q for a stream, which is no full address", address), "")
	}
	host := u.Host
	if u.Port() == "" {
		port := map[string]string{"http": "80", "https": "443"}[u.Scheme]
		host = net.JoinHostPort(u.Hostname(), port)
	}
	if err := p.host.dial(ctx, host); err != nil {
		return failed(check, fmt.Sprintf("%s cannot be reached: %v", host, err),
			"exec, attach and port-forward need it; check the runtime's streaming address and the firewall")
	}
	return ok(check, host+" can be reached")
}

// streamURL is the address of a port-forward to some ready pod, empty when
// there is none.
func (p *patient) streamURL(ctx context.Context) (string, error) {
	pods, err := p.conn.Runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
		State: &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
	}})
	if err != nil {
		return "", err
	}
	for _, pod := range pods.GetItems() {
		if pod.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
			continue // a runtime that ignores filters
		}
		r, err := p.conn.Runtime.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: pod.GetId(), Port: []int32{1}})
		return r.GetUrl(), err
	}
	return "", nil
}
