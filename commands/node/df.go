package node

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strings"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/api"
	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/disk"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type dfOptions struct {
	cli.View
	objects bool
	cni     string
}

// NewDf shows what takes up the disk of the node.
func NewDf(env *cli.Env) *urfave.Command {
	o := &dfOptions{cni: "/var/lib/cni"}
	return &urfave.Command{
		Name:  "df",
		Usage: "show what takes up disk, and what could be freed",
		Description: cli.WithExamples("By the runtime's own figures: Docker's, which can take minutes on a large host, containerd's, or what CRI has; what the runtime does not\n"+
			"tell is -. Only the files of logs, of pods' volumes, of CNI and of crishim itself are counted here, up to 100000 in a directory.\n"+
			"`crishim rmi --prune` frees images, `rm` containers that have ended, `gc` what is left of pods.",
			"crishim df", "crishim df -v --sort -size", "crishim df -o json"),
		Flags: append(o.TableFlags(output.DiskColumns), []urfave.Flag{
			cli.BoolFlag(&o.objects, "verbose", "list each object, too", "v"),
			cli.SortFlag(&o.View),
			cli.StringFlag(&o.cni, "cni-dir", "`DIRECTORY` of CNI's results and addresses (default /var/lib/cni)"),
		}...),
		Action: env.Connected(o.CheckAlone, o.run),
	}
}

func (o *dfOptions) run(ctx context.Context, env *cli.Env, conn *client.Conn) error {
	n := &nodeDisk{ctx: ctx, env: env, conn: conn, dirs: pod.DefaultDirs(env.LookupEnv), remote: conn.Remote(), reclaimable: map[string][]string{}}
	n.runtime = cmp.Or(conn.Version.GetRuntimeName(), conn.RuntimeEndpoint)
	n.list()
	usage := []output.DiskUse{n.ofImages()}
	usage = append(usage, n.ofContainers(), n.ofLogs(), n.ofVolumes(), n.ofBuildCache(), n.ofDir("cni", o.cni), n.ofCrishim())
	for i := range usage {
		slices.SortStableFunc(usage[i].Objects, func(a, b output.DiskObject) int {
			return cmp.Or(cmp.Compare(bytesOf(b.Size), bytesOf(a.Size)), cmp.Compare(a.Name, b.Name))
		})
		if !o.objects {
			usage[i].Objects = nil
		}
	}
	return cli.Join(append([]error{output.DiskUsage(env.Out, usage, o.Options)}, n.failed...)...)
}

func bytesOf(s *output.DiskSize) uint64 {
	if s == nil {
		return 0
	}
	return s.Bytes
}

// nodeDisk collects the disk usage, and the errors of what did not answer.
type nodeDisk struct {
	ctx     context.Context //nolint:containedctx // one command
	env     *cli.Env
	conn    *client.Conn
	dirs    pod.Dirs
	runtime string
	remote  string // "" where the disk is here
	failed  []error

	images   []*runtimeapi.Image
	use      *kuberuntime.ImageUse
	parts    *disk.Images
	pods     map[string]string      // names, by uid
	engine   *api.DiskUsageResponse // nil: it is no Docker engine, or does not answer
	noEngine string                 // why

	reclaimable map[string][]string // paths that gc would remove, by kind
}

// note returns what to say where a figure is not known. That a runtime does not have it is no failure.
func (n *nodeDisk) note(err error) string {
	switch {
	case err == nil:
		return ""
	case status.Code(err) == codes.Unimplemented || errors.Is(err, client.ErrNotDockershim):
		return n.runtime + " does not tell"
	}
	n.failed = append(n.failed, err)
	return "not known: " + cli.Sentence(n.env, err)
}

// list asks for what several types need.
func (n *nodeDisk) list() {
	pods, err := n.conn.Runtime.ListPodSandbox(n.ctx, &runtimeapi.ListPodSandboxRequest{})
	n.note(err)
	n.pods = map[string]string{}
	for _, p := range pods.GetItems() {
		n.pods[p.GetMetadata().GetUid()] = cli.PodPath(p.GetMetadata())
	}
	if n.remote == "" && err == nil {
		n.note(n.plan())
	}
	if n.engine, err = n.conn.DiskUsage(n.ctx); err != nil {
		n.engine, n.noEngine = nil, n.note(err)
	}
}

// plan finds what gc would remove of the directories of pods.
func (n *nodeDisk) plan() error {
	m, err := kuberuntime.New(n.ctx, kuberuntime.Options{Runtime: n.conn.ClientConn(), Image: n.conn.ImageClientConn(), Endpoint: n.conn.RuntimeEndpoint, Dirs: n.dirs, Now: n.env.Now})
	if err != nil {
		return err
	}
	defer m.Close()
	garbage, err := m.PlanGarbage(n.ctx, kuberuntime.DefaultGCPolicy(), kuberuntime.Sources{AllReady: true})
	if err != nil {
		return err
	}
	for _, item := range garbage.Items {
		n.reclaimable[item.Kind] = append(n.reclaimable[item.Kind], filepath.Clean(item.ID))
	}
	return nil
}

func (n *nodeDisk) ofImages() output.DiskUse {
	u := output.DiskUse{Type: "images"}
	list, err := n.conn.Image.ListImages(n.ctx, &runtimeapi.ListImagesRequest{})
	if err != nil {
		u.Note = n.note(err)
		return u
	}
	n.images = list.GetImages()
	count := len(n.images)
	u.Count = &count
	if n.parts, err = disk.ReadImages(n.ctx, n.conn, n.images, false); err != nil {
		u.Note = n.note(err)
		return u
	}
	if n.parts.Exact() {
		total := n.parts.Total()
		u.Size = &total
	} else if info, err := n.conn.Image.ImageFsInfo(n.ctx, &runtimeapi.ImageFsInfoRequest{}); err != nil {
		u.Note = n.note(err)
	} else if systems := info.GetImageFilesystems(); len(systems) > 0 {
		u.Size = &output.DiskSize{Bytes: systems[0].GetUsedBytes().GetValue()}
	}
	if n.use, err = kuberuntime.ImagesInUse(n.ctx, n.conn.Runtime, n.conn.Image); err != nil {
		u.Note = n.note(err)
		return u
	}
	active := 0
	var unused []string
	for _, image := range n.images {
		id := image.GetId()
		object := output.DiskObject{Name: cli.ImageName(image), ID: id, Active: n.use.Has(image) || n.parts.Used(id), Size: &output.DiskSize{Bytes: image.GetSize()}}
		if size, known := n.parts.Size(id); known {
			object.Size = &size
		}
		frees := output.DiskSize{}
		switch {
		case object.Active:
			active++
		case !image.GetPinned():
			unused = append(unused, id)
			frees = n.parts.Freed(id)
		}
		object.Reclaimable = &frees
		u.Objects = append(u.Objects, object)
	}
	frees := n.parts.Freed(unused...)
	u.Active, u.Reclaimable = &active, &frees
	return u
}

// totals sums the objects as far as their sizes are known.
func totals(u *output.DiskUse) {
	count, active, unknown := len(u.Objects), 0, 0
	var size, frees output.DiskSize
	for _, object := range u.Objects {
		if object.Active {
			active++
		}
		if object.Size == nil {
			unknown++
			continue
		}
		size = size.Plus(*object.Size)
		frees = frees.Plus(*object.Reclaimable)
	}
	u.Count, u.Active = &count, &active
	if unknown > 0 && unknown == count {
		return
	}
	if unknown > 0 {
		atLeast := output.DiskSize{Bound: output.AtLeast}
		size, frees = size.Plus(atLeast), frees.Plus(atLeast)
	}
	u.Size, u.Reclaimable = &size, &frees
}

// object returns an object that can be reclaimed as a whole, unless it is active.
func object(name, id string, active bool, size *output.DiskSize) output.DiskObject {
	o := output.DiskObject{Name: name, ID: id, Active: active, Size: size}
	if size != nil {
		o.Reclaimable = &output.DiskSize{}
		if !active {
			o.Reclaimable = size
		}
	}
	return o
}

// known returns a size; a negative number stands for one that is not known.
func known(bytes int64) *output.DiskSize {
	if bytes < 0 {
		return nil
	}
	return &output.DiskSize{Bytes: uint64(bytes)}
}

// ofContainers sums the writable layers of containers.
func (n *nodeDisk) ofContainers() output.DiskUse {
	u := output.DiskUse{Type: "containers"}
	list, err := n.conn.Runtime.ListContainers(n.ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		u.Note = n.note(err)
		return u
	}
	written := map[string]uint64{}
	var missing []string
	if n.engine == nil {
		stats, err := n.conn.Runtime.ListContainerStats(n.ctx, &runtimeapi.ListContainerStatsRequest{})
		for _, s := range stats.GetStats() {
			if size, known := disk.Layer(s); known {
				written[s.GetAttributes().GetId()] = size
			}
		}
		for _, c := range list.GetContainers() {
			if _, known := written[c.GetId()]; !known {
				missing = append(missing, c.GetId())
			}
		}
		if err == nil {
			var more map[string]uint64
			more, err = disk.Written(n.ctx, n.conn, n.parts, missing)
			for id, size := range more {
				written[id] = size
			}
		}
		u.Note = n.note(err)
	}
	for _, c := range n.engine.GetContainers() {
		if c.GetSize() >= 0 {
			written[c.GetId()] = uint64(c.GetSize())
		}
		if !c.GetInPod() { // no verb of ours removes it
			one := object(c.GetName(), c.GetId(), true, known(c.GetSize()))
			one.Active = c.GetUsed()
			u.Objects = append(u.Objects, one)
		}
	}
	for _, c := range cli.NamePods(n.ctx, n.conn, list.GetContainers()) {
		var size *output.DiskSize
		if bytes, known := written[c.GetId()]; known {
			size = &output.DiskSize{Bytes: bytes}
		}
		ended := c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		u.Objects = append(u.Objects, object(cli.SourceOf(c).FullName(), c.GetId(), !ended, size))
	}
	totals(&u)
	if u.Size == nil && u.Note == "" {
		u.Note = n.runtime + " does not tell what they have written"
	}
	return u
}

// elsewhere returns a type whose files are on another host.
func (n *nodeDisk) elsewhere(name string) output.DiskUse {
	return output.DiskUse{Type: name, Note: "on another host: " + n.remote}
}

// ofLogs sums the log files of pods, one directory each, and those that the engine keeps for each container.
func (n *nodeDisk) ofLogs() output.DiskUse {
	u := output.DiskUse{Type: "logs"}
	if n.remote != "" {
		return n.elsewhere(u.Type)
	}
	var failed error
	for _, at := range []string{n.dirs.Logs, cli.OwnLogs} {
		directories, err := disk.Subdirs(at)
		failed = cli.Join(failed, err)
		for _, name := range directories {
			path := filepath.Join(at, name)
			size, _, err := disk.Dir(n.ctx, path, nil)
			failed = cli.Join(failed, err)
			u.Objects = append(u.Objects, object(path, "", !slices.Contains(n.reclaimable["log directory"], path), &size))
		}
	}
	for _, c := range n.engine.GetContainers() {
		if c.GetLogSize() >= 0 {
			u.Objects = append(u.Objects, object("engine's log of "+c.GetName(), c.GetId(), c.GetUsed(), known(c.GetLogSize())))
		}
	}
	totals(&u)
	u.Note = n.note(failed)
	return u
}

// ofVolumes sums the volumes of pods, from manifests and of a kubelet, and the engine's.
func (n *nodeDisk) ofVolumes() output.DiskUse {
	u := output.DiskUse{Type: "volumes"}
	if n.remote != "" && n.engine == nil {
		return n.elsewhere(u.Type)
	}
	for _, v := range n.engine.GetVolumes() {
		u.Objects = append(u.Objects, object(v.GetName(), "", v.GetUsed(), known(v.GetSize())))
	}
	if n.remote == "" {
		var failed error
		for _, pods := range []string{n.dirs.Pods(), kubeletPods} {
			uids, err := disk.Subdirs(pods)
			failed = cli.Join(failed, err)
			for _, uid := range uids {
				path := filepath.Join(pods, uid)
				size, _, err := disk.Dir(n.ctx, filepath.Join(path, "volumes"), nil)
				failed = cli.Join(failed, err)
				u.Objects = append(u.Objects, object(cmp.Or(n.pods[uid], "pod "+uid), "", !slices.Contains(n.reclaimable["pod directory"], path), &size))
			}
		}
		u.Note = n.note(failed)
	}
	totals(&u)
	return u
}

// kubeletPods has the volumes of a kubelet's pods, which it removes itself.
const kubeletPods = "/var/lib/kubelet/pods"

func (n *nodeDisk) ofBuildCache() output.DiskUse {
	u := output.DiskUse{Type: "build cache", Note: n.noEngine}
	if n.engine == nil {
		return u
	}
	for _, b := range n.engine.GetBuildCache() {
		u.Objects = append(u.Objects, object(cmp.Or(b.GetName(), b.GetId()), b.GetId(), b.GetUsed(), known(b.GetSize())))
	}
	totals(&u)
	return u
}

// ofDir sums the files of a directory, none of which can be reclaimed.
func (n *nodeDisk) ofDir(name, path string, skip ...func(string) bool) output.DiskUse {
	u := output.DiskUse{Type: name}
	if n.remote != "" {
		return n.elsewhere(name)
	}
	size, files, err := disk.Dir(n.ctx, path, func(at string) bool {
		return slices.ContainsFunc(skip, func(skip func(string) bool) bool { return skip(at) })
	})
	u.Note = n.note(err)
	u.Count, u.Active, u.Size, u.Reclaimable = &files, &files, &size, &output.DiskSize{}
	return u
}

// ofCrishim sums crishim's own files of pods, without those in other lines.
func (n *nodeDisk) ofCrishim() output.DiskUse {
	volumes := func(at string) bool {
		parts := strings.SplitN(at, "/", 3)
		return parts[0] == "pods" && len(parts) == 3 && disk.VolumesOf(parts[2])
	}
	logs := func(at string) bool { return filepath.Join(n.dirs.Root, at) == n.dirs.Logs }
	u := n.ofDir("crishim", n.dirs.Root, volumes, logs)
	for _, path := range n.reclaimable["pod directory"] {
		size, _, err := disk.Dir(n.ctx, path, disk.VolumesOf)
		if u.Reclaimable != nil && err == nil {
			sum := u.Reclaimable.Plus(size)
			u.Reclaimable = &sum
		}
	}
	return u
}
