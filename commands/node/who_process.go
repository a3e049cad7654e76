package node

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/hostproc"
	"github.com/crishim/crishim/output"
)

func (s *search) byPID(ctx context.Context, pid int) (output.Owner, error) {
	p, err := hostproc.Look(pid)
	if err != nil {
		return output.Owner{}, err
	}
	row, notes := s.owner(ctx, p)
	row.Kind = "process"
	if p.Thread != 0 {
		notes = append([]string{fmt.Sprintf("thread %d of process %d", p.Thread, p.PID)}, notes...)
	}
	if row.Owner == output.OwnerUnit || row.Owner == output.OwnerHost {
		notes = append(notes, s.foreign(ctx, p)...)
	}
	row.Detail = strings.Join(notes, "; ")
	return row, nil
}

// owner finds the owner of a process by its control group: a container, a pod, a systemd unit, the kernel or the host.
// It also returns notes about the process.
func (s *search) owner(ctx context.Context, p hostproc.Process) (row output.Owner, notes []string) {
	row = output.Owner{PID: p.PID, Command: p.Command, Cgroup: p.Group.Path}
	if p.State == "Z" {
		notes = append(notes, "it has ended, and its parent has not waited for it")
	}
	g := p.Group
	if p.Kernel {
		row.Owner = output.OwnerKernel
		return row, append(notes, "a thread of the kernel")
	}
	if len(g.IDs) > 0 && (g.User == "" || s.proven(ctx, g)) {
		return row, append(notes, s.container(ctx, p, &row)...)
	}
	if g.PodUID != "" && len(g.IDs) == 0 {
		if s.runtime(ctx).hasPod(g.PodUID, &row) {
			return row, append(notes, "in no container of the pod")
		}
		s.unnamed = s.unnamed || s.failed != nil
		row.Owner = output.OwnerPod
		return row, append(notes, "of the pod with the uid "+g.PodUID)
	}
	row.Owner = output.OwnerHost
	if g.Unit != "" {
		row.Owner, row.Unit = output.OwnerUnit, g.Unit
	}
	if g.User != "" {
		notes = append(notes, "of the user "+g.User)
	}
	return row, append(notes, s.serves(ctx, p)...)
}

// container fills in the container of a process. If containers are nested, it is the outermost: a container can choose
// any name for the containers inside it. Containers in which crishim itself runs are skipped if the runtime does not list
// them, as on a node of kind.
func (s *search) container(ctx context.Context, p hostproc.Process, row *output.Owner) (notes []string) {
	list := s.runtime(ctx)
	ids := p.Group.IDs
	for len(ids) > 1 && !list.has(ids[0], row) && slices.Contains(s.own(), ids[0]) {
		ids = ids[1:]
	}
	if !list.has(ids[0], row) {
		row.Owner, row.ContainerID = output.OwnerContainer, ids[0]
		if s.unnamed = s.unnamed || s.failed != nil; s.failed == nil {
			notes = append(notes, s.conn.RuntimeEndpoint+" does not list this container: it is another runtime's, or of no pod")
		}
	}
	if p.Inner != 0 {
		notes = append(notes, fmt.Sprintf("pid %d there", p.Inner))
	}
	switch {
	case p.Group.Monitor:
		notes = append(notes, "watches the container from outside")
	case row.Owner == output.OwnerPod:
		notes = append(notes, "the pod's sandbox")
	}
	if len(ids) > 1 {
		notes = append(notes, "in a container inside it, which calls itself "+ids[1][:12])
	}
	return notes
}

// own returns the ids of the containers that crishim itself runs in.
func (s *search) own() []string {
	p, err := hostproc.Look(os.Getpid())
	if err != nil {
		s.printer.Debugf("own control groups: %v", err)
	}
	return p.Group.IDs
}

// proven checks the cgroup of a container below a user's systemd: it must contain the container's first process, because
// users can create cgroups of any name there.
func (s *search) proven(ctx context.Context, g hostproc.Group) bool {
	id := g.IDs[0]
	s.runtime(ctx)
	if s.failed != nil {
		return false
	}
	res, err := s.conn.Runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id, Verbose: true})
	info := res.GetInfo()
	if err != nil {
		var sandbox *runtimeapi.PodSandboxStatusResponse
		if sandbox, err = s.conn.Runtime.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true}); err != nil {
			return false
		}
		info = sandbox.GetInfo()
	}
	var details struct {
		PID int `json:"pid"`
	}
	if json.Unmarshal([]byte(info["info"]), &details) != nil || details.PID <= 0 {
		return false
	}
	first, err := hostproc.Look(details.PID)
	return err == nil && first.Group.SameContainer(g, id)
}

// foreign lists the containers whose namespaces a process of the host has joined, for example with nsenter.
func (s *search) foreign(ctx context.Context, p hostproc.Process) (notes []string) {
	for _, kind := range []string{"net", "mnt", "pid"} {
		here, err := hostproc.HostNamespace(kind)
		inode, ownErr := p.Namespace(kind)
		if err != nil || ownErr != nil || here == inode {
			continue
		}
		for _, other := range s.all() {
			if len(other.Group.IDs) == 0 {
				continue
			}
			if there, err := other.Namespace(kind); err == nil && there == inode {
				row, _ := s.owner(ctx, other)
				what := map[string]string{"net": "network", "mnt": "mount", "pid": "pid"}[kind]
				notes = append(notes, fmt.Sprintf("in the %s namespace of %s", what, row.Title(output.Options{})))
				break
			}
		}
	}
	return notes
}

// serves returns a note on the container that a host process serves, if any. The process is a containerd-shim, conmon or
// docker-proxy, and its command line names the container or its address.
func (s *search) serves(ctx context.Context, p hostproc.Process) []string {
	flag := ""
	switch {
	case strings.HasPrefix(p.Command, "containerd-shim"): // the kernel keeps 15 letters
		flag = "-id"
	case p.Command == "conmon":
		flag = "-c"
	case p.Command == hostproc.DockerProxy:
		return []string{fmt.Sprintf("forwards to %s:%s", p.Argument("-container-ip"), p.Argument("-container-port"))}
	default:
		return nil
	}
	id := p.Argument(flag)
	if id == "" {
		return nil
	}
	var served output.Owner
	if !s.runtime(ctx).has(id, &served) {
		served.ContainerID = id
	}
	return []string{"runs " + served.Title(output.Options{})}
}
