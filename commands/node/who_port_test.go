package node

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/crishim/crishim/internal/hostproc"
	"github.com/crishim/crishim/output"
)

// TestProxiesOfForwards: each forward of a port has the process of its own docker-proxy.
func TestProxiesOfForwards(t *testing.T) {
	t.Parallel()
	forwards := []forward{
		{mapping: output.PortMapping{HostPort: 53, HostIP: "10.0.0.1"}},
		{mapping: output.PortMapping{HostPort: 53, HostIP: "10.0.0.2"}},
		{mapping: output.PortMapping{HostPort: 53, Protocol: "UDP"}},
	}
	var got []bool
	for i, l := range []struct{ protocol, address, command, owner string }{
		{"tcp", "10.0.0.2:53", hostproc.DockerProxy, output.OwnerHost},
		{"tcp", "10.0.0.3:53", hostproc.DockerProxy, output.OwnerHost},
		{"udp", "0.0.0.0:53", hostproc.DockerProxy, output.OwnerHost},
		{"udp", "[::]:53", hostproc.DockerProxy, output.OwnerHost},
		{"tcp", "10.0.0.1:53", "named", output.OwnerHost},
		{"tcp", "10.0.0.1:53", hostproc.DockerProxy, output.OwnerContainer},
		{"tcp", "10.0.0.1:53", hostproc.DockerProxy, output.OwnerUnit},
	} {
		listener := hostproc.Listener{Protocol: l.protocol, Address: netip.MustParseAddrPort(l.address)}
		got = append(got, isProxyOf(forwards, listener, output.Owner{Owner: l.owner, Command: l.command, PID: i + 1}))
	}
	if diff := cmp.Diff([]bool{true, false, true, true, false, false, true}, got); diff != "" {
		t.Errorf("proxies (-want +got):\n%s", diff)
	}
	var pids []int
	for _, f := range forwards {
		pids = append(pids, f.row.PID)
	}
	if diff := cmp.Diff([]int{7, 1, 4}, pids); diff != "" {
		t.Errorf("PIDs (-want +got):\n%s", diff)
	}
}
