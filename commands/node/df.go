package node

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"

	urfave "github.com/urfave/cli/v2"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/client"
	"github.com/crishim/crishim/commands/cli"
	"github.com/crishim/crishim/commands/cli/disk"
	"github.com/crishim/crishim/internal/glob"
	"github.com/crishim/crishim/kuberuntime"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/output"
)

type dfOptions struct {
	cli.View
	objects bool
	dirs    pod.Dirs
}

// NewDf returns the verb that shows the disk usage of the node.
func NewDf(in *cli.Invocation) *cli.Verb {
	o := &dfOptions{dirs: in.PodDirs()}
	return &cli.Verb{
		Usage: "Show disk usage, and what can be freed",
		Description: cli.WithExamples("The runtime reports the sizes of images and of files that containers have written; - means unknown. crishim itself measures logs and\n"+
			"volumes of pods, up to 100000 files in a directory. `docker system df` shows the build cache and the volumes of Docker itself.\n"+
			"`crishim rmi --prune` removes unused images, `crishim rm` ended containers, `crishim gc` leftovers of pods.",
			"crishim df", "crishim df -v --sort -size", "crishim df -o json"),
		Flags: append(o.TableFlags(output.DiskColumns), []urfave.Flag{
			cli.BoolFlag(&o.objects, "verbose", "List each object, too", "v"),
			cli.SortFlag(&o.View),
		}...),
		Check: o.CheckAlone,
		RunOn: o.run,
	}
}

func (o *dfOptions) run(ctx context.Context, printer *cli.Printer, conn *client.Conn) error {
	n := &nodeDisk{ctx: ctx, printer: printer, conn: conn, dirs: o.dirs, reclaimable: map[string][]string{}}
	switch remote := conn.Remote(); {
	case remote != "":
		n.remote = "on another host: " + remote
	case !conn.SeesHost():
		n.remote = "not to be seen from this container"
	}
	n.runtime = cmp.Or(conn.Version.GetRuntimeName(), conn.RuntimeEndpoint)
	n.list()
	usage := []output.DiskUse{n.ofImages(), n.ofContainers(), n.ofLogs(), n.ofVolumes()}
	for i := range usage {
		slices.SortStableFunc(usage[i].Objects, func(a, b output.DiskObject) int {
			return cmp.Or(cmp.Compare(bytesOf(b.Size), bytesOf(a.Size)), cmp.Compare(a.Name, b.Name))
		})
		if !o.objects {
			usage[i].Objects = nil
		}
	}
	return cli.Join(append([]error{output.DiskUsage(printer.Out, usage, o.Options)}, n.failed...)...)
}

func bytesOf(s *output.DiskSize) uint64 {
	if s == nil {
		return 0
	}
	return s.Bytes
}

// nodeDisk collects the disk usage, and the errors of failed calls.
type nodeDisk struct {
	ctx     context.Context //nolint:containedctx // one command
	printer *cli.Printer
	conn    *client.Conn
	dirs    pod.Dirs
	runtime string
	remote  string // why crishim cannot see the files: they are on another host, or crishim is in a container; "" if it can
	failed  []error

	parts      *disk.Images
	pods       map[string]string       // names of pods by uid
	containers []*runtimeapi.Container // containers of pods

	reclaimable map[string][]string // paths, and ids of containers and sandboxes, that gc would remove, by kind
}

// note returns the text for an unknown figure. A runtime that does not implement the call is not a failure.
func (n *nodeDisk) note(err error) string {
	switch {
	case err == nil:
		return ""
	case status.Code(err) == codes.Unimplemented || errors.Is(err, client.ErrNotDockershim):
		return n.runtime + " does not tell"
	}
	n.failed = append(n.failed, err)
	return "not known: " + n.printer.Sentence(err)
}

// list loads the data that several types need.
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
}

// plan finds the directories of pods that gc would remove.
func (n *nodeDisk) plan() error {
	o := kuberuntime.ConnOptions(n.conn)
	o.Dirs, o.Now = n.dirs, n.printer.Now
	m, err := kuberuntime.New(n.ctx, o)
	if err != nil {
		return err
	}
	defer m.Close()
	garbage, err := m.PlanGarbage(n.ctx, kuberuntime.DefaultGCPolicy(), kuberuntime.Sources{})
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
	images := list.GetImages()
	count := len(images)
	u.Count = &count
	if n.parts, err = disk.ReadImages(n.ctx, n.conn, images, false); err != nil {
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
	use, err := kuberuntime.ImagesInUse(n.ctx, n.conn.Runtime, n.conn.Image)
	if err != nil {
		u.Note = n.note(err)
		return u
	}
	active := 0
	var unused []string
	for _, image := range images {
		id := image.GetId()
		object := output.DiskObject{Name: cli.ImageName(image), ID: id, Active: use.Has(image) || n.parts.Used(id), Size: &output.DiskSize{Bytes: image.GetSize()}}
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

// totals counts all objects and the active objects, and sums the known sizes. If some sizes are unknown, the sums are
// lower bounds. If all sizes are unknown, the sums stay nil.
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

// object returns an object. An inactive object is reclaimable as a whole.
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

// writtenRounds bounds the requests for sizes of writable layers: our shim omits layers that it is still measuring.
const writtenRounds = 5

// ofContainers sums the writable layers of containers.
func (n *nodeDisk) ofContainers() output.DiskUse {
	u := output.DiskUse{Type: "containers"}
	list, err := n.conn.Runtime.ListContainers(n.ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		u.Note = n.note(err)
		return u
	}
	n.containers = cli.NamePods(n.ctx, n.conn, list.GetContainers())
	written := map[string]uint64{}
	stats, err := n.conn.Runtime.ListContainerStats(n.ctx, &runtimeapi.ListContainerStatsRequest{})
	for _, s := range stats.GetStats() {
		if size, known := disk.WritableLayer(s); known {
			written[s.GetAttributes().GetId()] = size
		}
	}
	for range writtenRounds {
		var missing []string
		for _, c := range n.containers {
			if _, known := written[c.GetId()]; !known {
				missing = append(missing, c.GetId())
			}
		}
		if err != nil || len(missing) == 0 {
			break
		}
		var more map[string]uint64
		more, err = disk.WritableLayers(n.ctx, n.conn, n.parts, missing)
		maps.Copy(written, more)
	}
	u.Note = n.note(err)
	for _, c := range n.containers {
		var size *output.DiskSize
		if bytes, known := written[c.GetId()]; known {
			size = &output.DiskSize{Bytes: bytes}
		}
		ended := c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
		u.Objects = append(u.Objects, object(cli.ContainerPathOf(c).FullName(), c.GetId(), !ended, size))
	}
	totals(&u)
	if u.Size == nil && u.Note == "" {
		u.Note = n.runtime + " does not tell what they have written"
	}
	return u
}

// elsewhere returns a type without sizes, because crishim does not see its files. The note is n.remote.
func (n *nodeDisk) elsewhere(name string) output.DiskUse {
	return output.DiskUse{Type: name, Note: n.remote}
}

// ofLogs sums the log directory of each pod and the engine's own log of each container.
func (n *nodeDisk) ofLogs() output.DiskUse {
	u := output.DiskUse{Type: "logs"}
	// In a container, crishim measures the directory if it is mounted there. On another host, it cannot.
	if _, err := os.Stat(n.dirs.Logs); n.remote != "" && (err != nil || n.conn.Remote() != "") {
		return n.elsewhere(u.Type)
	}
	var failed error
	for _, at := range []string{n.dirs.Logs, cli.OwnLogs} {
		directories, err := disk.Subdirs(at)
		failed = cli.Join(failed, err)
		for _, name := range directories {
			path := filepath.Join(at, name)
			size, err := disk.DirSize(n.ctx, path)
			failed = cli.Join(failed, err)
			u.Objects = append(u.Objects, object(path, "", !slices.Contains(n.reclaimable["log directory"], path), &size))
		}
	}
	details, err := cli.ContainerDetails(n.ctx, n.conn, n.containers, true)
	failed = cli.Join(failed, err)
	for _, c := range n.containers {
		if size := engineLog(details[c.GetId()].GetInfo()["info"]); size != nil {
			ended := c.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
			u.Objects = append(u.Objects, object("engine's log of "+cli.ContainerPathOf(c).FullName(), c.GetId(), !ended, size))
		}
	}
	totals(&u)
	u.Note = n.note(failed)
	return u
}

// engineLog sums the Docker engine's log files of a container, including rotated files. info is our shim's verbose info.
func engineLog(info string) *output.DiskSize {
	var detail struct {
		LogPath string `json:"logPath"`
	}
	if json.Unmarshal([]byte(info), &detail) != nil || detail.LogPath == "" {
		return nil
	}
	files, err := filepath.Glob(glob.Escape(detail.LogPath) + "*")
	if err != nil || len(files) == 0 {
		return nil
	}
	var size output.DiskSize
	for _, file := range files {
		if f, err := os.Lstat(file); err == nil && f.Mode().IsRegular() {
			size.Bytes += uint64(f.Size()) //nolint:gosec // sizes are not negative
		}
	}
	return &size
}

// ofVolumes sums the volumes of pods, from manifests and of a kubelet.
func (n *nodeDisk) ofVolumes() output.DiskUse {
	u := output.DiskUse{Type: "volumes"}
	if n.remote != "" {
		return n.elsewhere(u.Type)
	}
	var failed error
	for _, pods := range []string{n.dirs.Pods(), kubeletPods} {
		uids, err := disk.Subdirs(pods)
		failed = cli.Join(failed, err)
		for _, uid := range uids {
			path := filepath.Join(pods, uid)
			size, err := disk.DirSize(n.ctx, filepath.Join(path, "volumes"))
			failed = cli.Join(failed, err)
			u.Objects = append(u.Objects, object(cmp.Or(n.pods[uid], "pod "+uid), "", !slices.Contains(n.reclaimable["pod directory"], path), &size))
		}
	}
	u.Note = n.note(failed)
	totals(&u)
	return u
}

// kubeletPods contains the volumes of a kubelet's pods. The kubelet removes these volumes itself.
const kubeletPods = "/var/lib/kubelet/pods"
