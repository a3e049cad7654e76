package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client/containerd"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/node/hostproc"
	"github.com/crishim/crishim/output"
)

// byPath finds the owners of a file or directory, by the status of containers and by what the kernel has mounted where.
func (s *search) byPath(ctx context.Context, path string) ([]output.Owner, error) {
	real, links, err := follow(path)
	if errors.Is(err, fs.ErrPermission) {
		err = permission(err)
	}
	if err != nil {
		return nil, err
	}
	m, err := s.mounted()
	if err != nil {
		return nil, err
	}
	rows := s.inPath(ctx, m, real)
	for _, link := range links { // a container that may write there chooses where it leads
		for _, row := range s.inPath(ctx, m, link) {
			if row.ContainerID != "" && !strings.HasSuffix(row.Detail, hostproc.ReadOnly) {
				row.Detail = fmt.Sprintf("the symbolic link %s is %s", link, row.Detail)
				rows = append(rows, row)
			}
		}
	}
	if len(rows) > 0 {
		return rows, nil
	}
	row := output.Owner{Kind: "path", Owner: output.OwnerHost, Detail: "in no container"}
	if place, ok := hostproc.Locate(m.host, real); ok {
		row.Detail += fmt.Sprintf("; on %s, %s", place.Mount.Source, place.Mount.Type)
	}
	s.unnamed = s.unnamed || s.failed != nil
	return []output.Owner{row}, nil
}

// maxLinks is the kernel's own limit.
const maxLinks = 40

// follow resolves a path, and lists the symbolic links on its way.
func follow(path string) (real string, links []string, err error) {
	real = "/"
	rest := strings.Split(strings.Trim(path, "/"), "/")
	for len(rest) > 0 {
		next := filepath.Join(real, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return "", nil, cmp.Or(errors.Unwrap(err), err)
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			real = next
			continue
		}
		if links = append(links, next); len(links) > maxLinks {
			return "", nil, errors.New("too many symbolic links")
		}
		to, err := os.Readlink(next)
		if err != nil {
			return "", nil, err
		}
		if filepath.IsAbs(to) {
			real = "/"
		}
		rest = append(strings.Split(strings.Trim(to, "/"), "/"), rest...)
	}
	return real, links, nil
}

// mounted is what is mounted on this machine, and in its containers.
type mounted struct {
	host       []hostproc.Mount
	containers []view // one for each mount namespace
	networks   map[uint64][]hostproc.Process
}

// view is what the processes of a mount namespace see, without what they see of the whole machine.
type view struct {
	process hostproc.Process
	mounts  []hostproc.Mount
}

func (s *search) mounted() (m mounted, err error) {
	if m.host, err = hostproc.Mounts(os.Getpid()); err != nil {
		return m, err
	}
	m.networks, _ = hostproc.Networks(s.all())
	seen := map[uint64]bool{}
	if own, err := hostproc.HostNamespace("mnt"); err == nil {
		seen[own] = true
	}
	for _, p := range s.all() {
		if len(p.Group.IDs) == 0 || p.Group.Monitor {
			continue
		}
		inode, err := p.Namespace("mnt")
		if err != nil || seen[inode] {
			continue
		}
		if mounts, err := hostproc.Mounts(p.PID); err == nil {
			seen[inode] = true
			m.containers = append(m.containers, view{p, hostproc.OwnMounts(mounts, m.host)})
		}
	}
	return m, nil
}

// inPath lists the owners of a path without symbolic links, the closest first.
func (s *search) inPath(ctx context.Context, m mounted, path string) (rows []output.Owner) {
	list := s.runtime(ctx)
	place, located := hostproc.Locate(m.host, path)
	if located {
		rows = append(rows, s.special(ctx, m, place, path)...)
	}
	if s.failed == nil && s.here() {
		rows = append(rows, s.byStatus(ctx, path)...)
	}
	add := func(p hostproc.Process, kind, detail string) {
		row, _ := s.owner(ctx, p)
		row.Kind, row.Detail, row.PID, row.Command, row.Cgroup = kind, detail, 0, "", ""
		rows = appendOwner(rows, row)
	}
	for _, v := range m.containers {
		root, ok := hostproc.RootOf(v.mounts)
		if !ok || !located {
			continue
		}
		if shown, ok := root.Shows(place); ok {
			add(v.process, "rootfs", shown+" in the root file system")
		} else if layers, ok := hostproc.LayersOf(root, m.host); ok {
			if what, ok := layers.Holds(path); ok {
				add(v.process, "layer", what)
			}
		}
		for _, mount := range v.mounts {
			if shown, ok := mount.Shows(place); ok && mount.Mountpoint != "/" && !slices.Contains(kernelFiles, mount.Type) {
				detail := shown + " in the container"
				if mount.ReadOnly {
					detail += hostproc.ReadOnly
				}
				add(v.process, "mount", detail)
			}
		}
	}
	return append(rows, named(list, rows, path)...)
}

// kernelFiles are file systems that every container has, so that they tell nothing about the owner.
var kernelFiles = []string{"proc", "sysfs", "cgroup", "cgroup2", "devpts", "mqueue", "securityfs", "debugfs", "tracefs", "bpf", "nsfs"}

// special finds the owners of files that are not regular: control groups, network namespaces, sockets.
func (s *search) special(ctx context.Context, m mounted, place hostproc.Place, path string) (rows []output.Owner) {
	switch place.Mount.Type {
	case "cgroup", "cgroup2":
		p := hostproc.Process{Group: hostproc.ParseGroup("0::" + place.Path)}
		row, notes := s.owner(ctx, p)
		row.Kind, row.Detail = "cgroup", strings.Join(notes, "; ")
		return []output.Owner{row}
	case "nsfs": // net:[4026532567]
		var inode uint64
		if _, err := fmt.Sscanf(place.Mount.Root, "net:[%d]", &inode); err != nil {
			return nil
		}
		for _, p := range m.networks[inode] {
			if row, _ := s.owner(ctx, p); row.ContainerID != "" || row.PodID != "" {
				row.Kind, row.Detail = "network", "its network namespace"
				return []output.Owner{row}
			}
		}
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&fs.ModeSocket == 0 {
		return nil
	}
	holders, err := hostproc.SocketHolders(m.networks, path)
	if err != nil {
		s.env.Debugf("listeners on %s: %v", path, err)
	}
	for _, p := range holders {
		row, notes := s.owner(ctx, p)
		row.Kind, row.Detail = "socket", strings.Join(append([]string{"listens there"}, notes...), "; ")
		rows = appendOwner(rows, row)
	}
	return rows
}

// appendOwner adds a row unless there is one of the same owner.
func appendOwner(rows []output.Owner, row output.Owner) []output.Owner {
	title := row.Title(output.Options{})
	if slices.ContainsFunc(rows, func(other output.Owner) bool { return other.Title(output.Options{}) == title }) {
		return rows
	}
	return append(rows, row)
}

// byStatus finds owners by the volumes and logs in the status of containers, running or not.
func (s *search) byStatus(ctx context.Context, path string) (rows []output.Owner) {
	var all []*runtimeapi.Container
	for _, c := range s.list.containers {
		all = append(all, c)
	}
	details, err := cli.ContainerDetails(ctx, s.conn, all, true)
	if err != nil {
		s.env.Warn("the mounts and logs of some containers are not known: %s", cli.Sentence(s.env, err))
	}
	layers := s.byLayers(ctx, details, path)
	source := map[string]int{} // length of the directory that a row is about
	for id, res := range details {
		row := output.Owner{}
		s.list.has(id, &row)
		if log := res.GetStatus().GetLogPath(); log != "" {
			real, _, err := follow(log)
			if log == path || err == nil && real == path || filepath.Dir(log) == path {
				row.Kind, row.Detail = "log", log
				source[id] = len(path)
				rows = append(rows, row)
				continue
			}
		}
		for _, mount := range res.GetStatus().GetMounts() {
			host := filepath.Clean(mount.GetHostPath())
			rest, ok := hostproc.Below(path, host)
			if !ok || mount.GetHostPath() == "" || host == "/" || source[id] >= len(mount.GetHostPath()) {
				continue
			}
			rows = slices.DeleteFunc(rows, func(other output.Owner) bool { return other.ContainerID == id })
			source[id] = len(mount.GetHostPath())
			row.Kind, row.Detail = "volume", filepath.Join(mount.GetContainerPath(), rest)+" in the container"
			if mount.GetReadonly() {
				row.Detail += hostproc.ReadOnly
			}
			rows = append(rows, row)
		}
	}
	slices.SortFunc(rows, func(a, b output.Owner) int {
		return cmp.Or(source[b.ContainerID]-source[a.ContainerID], strings.Compare(a.ContainerID, b.ContainerID))
	})
	return append(rows, layers...)
}

// byLayers finds the containers that do not run, and so have nothing mounted, by the directories that the runtime keeps
// for them.
func (s *search) byLayers(ctx context.Context, details map[string]*runtimeapi.ContainerStatusResponse, path string) (rows []output.Owner) {
	store, ok := containerd.Open(ctx, s.conn.ClientConn())
	if !ok {
		store = nil
	}
	for _, id := range slices.Sorted(maps.Keys(details)) {
		res := details[id]
		if res.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
			continue
		}
		layers, err := layersOf(ctx, store, res.GetInfo())
		if err != nil {
			s.env.Debugf("layers of container %s: %v", id, err)
			continue
		}
		if what, ok := layers.Holds(path); ok {
			row := output.Owner{Kind: "layer", Detail: what}
			s.list.has(id, &row)
			rows = append(rows, row)
		}
	}
	return rows
}

// layersOf returns the layers of a container, by the verbose status that our shim or containerd has of it.
func layersOf(ctx context.Context, store *containerd.Store, info map[string]string) (l hostproc.Layers, err error) {
	if store != nil {
		l.Upper, l.Lower, err = store.Overlay(ctx, info)
		l.Work = filepath.Join(filepath.Dir(l.Upper), "work")
		return l, err
	}
	var docker struct {
		GraphDriver struct{ UpperDir, LowerDir, WorkDir string }
	}
	err = json.Unmarshal([]byte(info["info"]), &docker)
	d := docker.GraphDriver
	return hostproc.Layers{Upper: d.UpperDir, Work: d.WorkDir, Lower: strings.Split(d.LowerDir, ":")}, err
}

// named finds a pod or container by a directory on the path that a runtime or kubelet has named after it. A container that
// sees the path among its own files may have created it, with any name.
func named(list inventory, rows []output.Owner, path string) []output.Owner {
	if slices.ContainsFunc(rows, func(r output.Owner) bool {
		return r.ContainerID != "" && !strings.HasSuffix(r.Detail, hostproc.ReadOnly)
	}) {
		return nil
	}
	for dir := range strings.SplitSeq(strings.Trim(path, "/"), "/") {
		row := output.Owner{Kind: "directory"}
		if row.Detail = "named after the container"; list.has(dir, &row) {
			return []output.Owner{row}
		}
		for _, p := range list.pods {
			m := p.GetMetadata()
			if m.GetUid() != "" && (dir == m.GetUid() || dir == m.GetNamespace()+"_"+m.GetName()+"_"+m.GetUid()) && list.hasPod(m.GetUid(), &row) {
				row.Detail = "named after the pod"
				return []output.Owner{row}
			}
		}
	}
	return nil
}
