package node

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/internal/hostproc"
	"github.com/crishim/crishim/output"
)

func (s *search) byPort(ctx context.Context, t whoTarget) ([]output.Owner, error) {
	networks, denied := hostproc.Networks(s.all())
	listeners, err := hostproc.Listeners(networks, t.port, t.protocol)
	if err != nil {
		return nil, err
	}
	forwards := s.forwards(ctx, t)
	var rows, others []output.Owner
	for _, l := range listeners {
		for _, row := range s.listening(ctx, l, networks) {
			if !isProxyOf(forwards, l, row) {
				others = append(others, row)
			}
		}
	}
	for _, f := range forwards {
		rows = append(rows, f.row)
	}
	if rows = append(rows, others...); len(rows) > 0 {
		if s.failed != nil {
			return rows, fmt.Errorf("the forwarded ports of pods are unknown: %w", s.failed)
		}
		return rows, nil
	}
	err = fmt.Errorf("nothing listens on port %d", t.port)
	if t.protocol != "" {
		err = fmt.Errorf("%w/%s", err, t.protocol)
	}
	if denied {
		err = permission(err)
	}
	if s.failed != nil {
		err = cli.Join(err, fmt.Errorf("the forwarded ports of pods are unknown: %w", s.failed))
	}
	return nil, err
}

// forward is a port of the host that the runtime forwards to a pod.
type forward struct {
	row     output.Owner
	mapping output.PortMapping
}

// isProxyOf reports whether the row is the docker-proxy of a forward, and fills in the process of that forward. IPv4 and
// IPv6 may have separate proxies.
func isProxyOf(forwards []forward, l hostproc.Listener, row output.Owner) bool {
	if row.Command != hostproc.DockerProxy || row.Owner == output.OwnerContainer {
		return false
	}
	i := slices.IndexFunc(forwards, func(f forward) bool { return f.mapping.Forwards(l.Address, l.Protocol) })
	if i >= 0 {
		forwards[i].row.PID, forwards[i].row.Command = row.PID, row.Command
	}
	return i >= 0
}

// listening returns a row for each owner of a socket. A socket unit and its service may share it.
func (s *search) listening(ctx context.Context, l hostproc.Listener, networks map[uint64][]hostproc.Process) (rows []output.Owner) {
	where := fmt.Sprintf("%s/%s in %s", l.Address, l.Protocol, s.network(ctx, l.Network, networks))
	if len(l.Holders) == 0 {
		row := output.Owner{Kind: "listener", Owner: output.OwnerKernel, Detail: where + "; no process has it open"}
		if os.Geteuid() != 0 {
			row.Owner, row.Detail = output.OwnerHost, where+"; whose it is only root sees"
		}
		return []output.Owner{row}
	}
	seen := map[string]bool{}
	for _, p := range l.Holders {
		row, notes := s.owner(ctx, p)
		row.Kind, row.Detail = "listener", strings.Join(append([]string{where}, notes...), "; ")
		if title := row.Title(output.Options{NoTrunc: true}); !seen[title] {
			seen[title] = true
			rows = append(rows, row)
		}
	}
	return rows
}

// network names the owner of a network namespace.
func (s *search) network(ctx context.Context, inode uint64, networks map[uint64][]hostproc.Process) string {
	if host, err := hostproc.HostNamespace("net"); err == nil && host == inode {
		return "the network of this machine"
	}
	for _, p := range networks[inode] {
		if len(p.Group.IDs) > 0 && !p.Group.Monitor {
			row, _ := s.owner(ctx, p)
			row.Container = ""
			return "the network of " + row.Title(output.Options{})
		}
	}
	return fmt.Sprintf("the network namespace %d", inode)
}

// forwards lists the pods to which the runtime forwards a port of the host.
func (s *search) forwards(ctx context.Context, t whoTarget) (found []forward) {
	list := s.runtime(ctx)
	if s.failed != nil || !s.here() {
		return nil
	}
	var ready []*runtimeapi.PodSandbox
	for _, p := range list.pods {
		if p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			ready = append(ready, p)
		}
	}
	details, err := cli.PodDetails(ctx, s.conn, ready, (*runtimeapi.PodSandbox).GetId, true)
	if err != nil {
		s.printer.Warn("the forwarded ports of some pods are unknown: %w", err)
	}
	for id, status := range details {
		for _, m := range output.SandboxPorts(status) {
			if !m.Forwards(netip.AddrPortFrom(netip.Addr{}, t.port), t.protocol) {
				continue
			}
			row := output.Owner{Kind: "forward", Detail: fmt.Sprintf("%s, to %s", m, status.GetStatus().GetNetwork().GetIp())}
			list.has(id, &row)
			found = append(found, forward{row, m})
		}
	}
	slices.SortFunc(found, func(a, b forward) int { return strings.Compare(a.row.PodID+a.row.Detail, b.row.PodID+b.row.Detail) })
	return found
}

// here reports whether the runtime's containers run on this machine: the cgroup of a process must contain the id of a
// running container or a ready sandbox. If the runtime has neither, a unix endpoint of the runtime or of its engine is
// enough.
func (s *search) here() bool {
	running := map[string]bool{}
	for id, c := range s.list.containers {
		if c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			running[id] = true
		}
	}
	for id, p := range s.list.pods {
		if p.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			running[id] = true
		}
	}
	if len(running) == 0 {
		return strings.HasPrefix(s.conn.RuntimeEndpoint, "unix:") || strings.HasPrefix(s.conn.Engine.Host, "unix:")
	}
	if slices.ContainsFunc(s.all(), func(p hostproc.Process) bool {
		return slices.ContainsFunc(p.Group.IDs, func(id string) bool { return running[id] })
	}) {
		return true
	}
	if !s.elsewhere {
		s.printer.Warn("no process on this machine is of a container of %s: its ports are not looked at", s.conn.RuntimeEndpoint)
	}
	s.elsewhere = true
	return false
}
