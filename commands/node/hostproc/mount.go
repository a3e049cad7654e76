package hostproc

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/moby/sys/mountinfo"
)

// Mount is a mount as the kernel lists it. Device and Root say what is mounted, whatever it is called where.
type Mount struct {
	Device     [2]int
	Root       string // the directory or file of the file system that is mounted
	Mountpoint string // in the mount namespace of who was asked
	Type       string
	Source     string
	ReadOnly   bool
	options    string
}

// Mounts lists the mounts that a process sees.
func Mounts(pid int) ([]Mount, error) {
	f, err := os.Open(path(pid, "mountinfo"))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	infos, err := mountinfo.GetMountsFromReader(f, nil)
	if err != nil {
		return nil, err
	}
	list := make([]Mount, 0, len(infos))
	for _, i := range infos {
		list = append(list, Mount{
			Device: [2]int{i.Major, i.Minor}, Root: i.Root, Mountpoint: i.Mountpoint, Type: i.FSType, Source: i.Source,
			ReadOnly: slices.Contains(strings.Split(i.Options, ","), "ro"), options: i.VFSOptions,
		})
	}
	return list, nil
}

// OwnMounts leaves out the root of the host and what is below it, which agents mount and of which they own nothing.
func OwnMounts(mounts, host []Mount) []Mount {
	machine, ok := RootOf(host)
	var all []string // where the root of the host is
	for _, m := range mounts {
		if ok && m.Device == machine.Device && m.Root == machine.Root {
			all = append(all, m.Mountpoint)
		}
	}
	return slices.DeleteFunc(slices.Clone(mounts), func(m Mount) bool {
		return slices.ContainsFunc(all, func(dir string) bool {
			_, below := Below(m.Mountpoint, dir)
			return below
		})
	})
}

// Place is where a path is in its file system.
type Place struct {
	Device [2]int
	Path   string
	Mount  Mount // in which it is
}

// Locate finds the place of a path, which has no symbolic links, among the mounts of this process.
func Locate(mounts []Mount, file string) (Place, bool) {
	var best *Mount
	for i, m := range mounts { // of equals the last one is on top
		if _, ok := Below(file, m.Mountpoint); ok && (best == nil || len(m.Mountpoint) >= len(best.Mountpoint)) {
			best = &mounts[i]
		}
	}
	if best == nil {
		return Place{}, false
	}
	rest, _ := Below(file, best.Mountpoint)
	return Place{best.Device, filepath.Join(best.Root, rest), *best}, true
}

// Below returns the path of a file from a directory that it is in, or is.
func Below(file, dir string) (rest string, ok bool) {
	if dir == "/" {
		return strings.TrimPrefix(file, "/"), strings.HasPrefix(file, "/")
	}
	rest, ok = strings.CutPrefix(file, dir)
	return strings.TrimPrefix(rest, "/"), ok && (rest == "" || rest[0] == '/')
}

// Shows returns the path by which a mount shows a place, and false where it does not.
func (m Mount) Shows(p Place) (file string, ok bool) {
	rest, ok := Below(p.Path, m.Root)
	if !ok || m.Device != p.Device {
		return "", false
	}
	return filepath.Join(m.Mountpoint, rest), true
}

// Layers are the directories of an overlay: what the container has written, and what it has been given.
type Layers struct {
	Upper, Work string
	Lower       []string
}

// LayersOf returns the layers of a container's root file system. They are those of the mount of the same overlay
// on the host: a container that may mount can give one of its own any layers to show.
func LayersOf(root Mount, host []Mount) (Layers, bool) {
	i := slices.IndexFunc(host, func(m Mount) bool { return m.Type == "overlay" && m.Device == root.Device })
	if i < 0 || root.Type != "overlay" {
		return Layers{}, false
	}
	var l Layers
	for option := range strings.SplitSeq(host[i].options, ",") {
		name, value, _ := strings.Cut(option, "=")
		switch name {
		case "upperdir":
			l.Upper = value
		case "workdir":
			l.Work = value
		case "lowerdir":
			l.Lower = strings.Split(value, ":")
		}
	}
	for n, dir := range l.Lower {
		if !filepath.IsAbs(dir) && l.Upper != "" { // containerd shortens many: below the directory of its snapshots
			dir = filepath.Join(filepath.Dir(filepath.Dir(l.Upper)), dir)
		}
		if real, err := filepath.EvalSymlinks(dir); err == nil { // Docker's are called l/SHORT
			dir = real
		}
		l.Lower[n] = dir
	}
	return l, l.Upper != "" || len(l.Lower) > 0
}

// Holds reports whether a path is in the layers, or a directory that the runtime keeps one in, and says as what.
func (l Layers) Holds(file string) (what string, ok bool) {
	if rest, ok := Below(file, l.Upper); ok && l.Upper != "" {
		return "/" + rest + " in what the container has written", true
	}
	if rest, ok := Below(file, l.Work); ok && l.Work != "" {
		return "/" + rest + " in the work directory of the overlay", true
	}
	for _, dir := range l.Lower {
		if rest, ok := Below(file, dir); ok {
			return "/" + rest + " in a layer of the image" + ReadOnly, true
		}
	}
	// Docker's ID/diff and ID/work, containerd's N/fs and N/work: du shows the directory around them.
	if l.Upper != "" && file == filepath.Dir(l.Upper) && file == filepath.Dir(l.Work) {
		return "with what the container has written", true
	}
	for _, dir := range l.Lower {
		if base := filepath.Base(dir); file == filepath.Dir(dir) && (base == "diff" || base == "fs") {
			return "with a layer of the image" + ReadOnly, true
		}
	}
	return "", false
}

// ReadOnly ends the detail of what a container cannot write.
const ReadOnly = ", read-only"

// RootOf returns the mount that is the root of a process's files.
func RootOf(mounts []Mount) (Mount, bool) {
	for _, m := range slices.Backward(mounts) {
		if m.Mountpoint == "/" {
			return m, true
		}
	}
	return Mount{}, false
}
