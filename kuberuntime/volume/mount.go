package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// Mounts returns a container's volumeMounts as CRI mounts. expand expands $(VAR) in subPathExpr. imageRef maps the
// reference of an image volume to the runtime's reference.
func (m *Maker) Mounts(p *v1.Pod, c *v1.Container, made map[string]Made, expand func(string) (string, error), imageRef func(string) string) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i := range c.VolumeMounts {
		at := &c.VolumeMounts[i]
		volume, ok := made[at.Name]
		if !ok {
			return nil, fmt.Errorf("mount %s: no volume %s", at.MountPath, at.Name)
		}
		sub := at.SubPath
		if at.SubPathExpr != "" {
			var err error
			if sub, err = expand(at.SubPathExpr); err != nil { // an unknown $(VAR) would become the name of a directory
				return nil, fmt.Errorf("mount %s: subPathExpr %q: %w", at.MountPath, at.SubPathExpr, err)
			}
		}
		mount := newMount(at, volume, sub)
		if mount.Image != nil {
			mount.Image.Image = imageRef(volume.Image.Reference)
		} else if sub != "" {
			path, err := m.subPath(volume, sub, m.Dirs.SubPath(string(p.UID), at.Name, c.Name, i), at.MountPropagation)
			if err != nil { // the error has the unexpanded path: a variable may be secret
				return nil, fmt.Errorf("mount %s: subPath %q: %w", at.MountPath, at.SubPath+at.SubPathExpr, err)
			}
			mount.HostPath = path
		}
		out = append(out, mount)
	}
	return out, nil
}

// PlanMounts returns the mounts that Mounts would return, but without expanding sub paths, bind-mounting them, or
// resolving images: a sub path is joined to the path of its volume, and an image has the reference in the manifest.
func PlanMounts(c *v1.Container, made map[string]Made) []*runtimeapi.Mount {
	var out []*runtimeapi.Mount
	for i := range c.VolumeMounts {
		at := &c.VolumeMounts[i]
		sub := at.SubPath + at.SubPathExpr
		mount := newMount(at, made[at.Name], sub)
		if mount.Image == nil && sub != "" {
			mount.HostPath = filepath.Join(mount.HostPath, sub)
		}
		out = append(out, mount)
	}
	return out
}

// newMount returns the mount of a whole volume, or of a path in an image volume.
func newMount(at *v1.VolumeMount, volume Made, sub string) *runtimeapi.Mount {
	mount := &runtimeapi.Mount{
		ContainerPath: at.MountPath, HostPath: volume.Path, Readonly: at.ReadOnly || volume.ReadOnly, SelinuxRelabel: volume.Relabel,
		RecursiveReadOnly: ptr.Deref(at.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled) == v1.RecursiveReadOnlyEnabled,
	}
	if !filepath.IsAbs(at.MountPath) {
		mount.ContainerPath = "/" + at.MountPath // as the kubelet does
	}
	switch ptr.Deref(at.MountPropagation, v1.MountPropagationNone) {
	case v1.MountPropagationHostToContainer:
		mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case v1.MountPropagationBidirectional:
		mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	}
	if volume.Image != nil {
		mount.Image = &runtimeapi.ImageSpec{Image: volume.Image.Reference, UserSpecifiedImage: volume.Image.Reference}
		mount.ImageSubPath = sub
	}
	return mount
}

var (
	errLeaves  = errors.New("leaves the volume")
	errNoMount = errors.New("a sub path of a volume that containers can write to needs a bind mount, which only root can make here")
)

// subPath opens a path inside a volume, or creates a directory there, and returns the host path for the runtime.
// Containers that share the volume can replace any of its directories with a link at any time, and the runtime would
// follow the link. So subPath resolves the path once, beneath the volume, and bind-mounts the result at target, which
// no container can change. Without the right to mount, only read-only volumes can have sub paths.
func (m *Maker) subPath(volume Made, sub, target string, mode *v1.MountPropagationMode) (string, error) {
	fd, err := openBeneath(volume.Path, sub)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	err = m.bind(fd, target)
	if errors.Is(err, unix.EPERM) {
		if volume.ReadOnly {
			return os.Readlink(descriptor(fd))
		}
		return "", errNoMount
	}
	if err == nil && ptr.Deref(mode, v1.MountPropagationNone) != v1.MountPropagationBidirectional {
		// As a slave, the mount receives mounts below the volume, and unmounting it does not unmount others.
		err = unix.Mount("", target, "", unix.MS_SLAVE, "")
	}
	if err != nil {
		return "", fmt.Errorf("bind mount: %w", err)
	}
	return target, nil
}

func descriptor(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

// bind mounts the file or directory behind fd at target. It keeps a mount of the same file by an earlier attempt or
// process.
func (m *Maker) bind(fd int, target string) error {
	var want, have unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return err
	}
	if unix.Stat(target, &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino {
		return nil
	}
	for detach(target) == nil { // detach fails once nothing is mounted there
	}
	if err := os.Remove(target); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(target), 0o750); err != nil {
		return err
	}
	var err error
	if want.Mode&unix.S_IFMT == unix.S_IFDIR {
		err = os.Mkdir(target, 0o750)
	} else {
		err = os.WriteFile(target, nil, 0o640)
	}
	if err != nil {
		return err
	}
	return m.BindMount(descriptor(fd), target)
}

// BindMount bind-mounts a file or directory. It needs root.
func BindMount(source, target string) error {
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

// maxSteps limits the components of a path, including the components of its links.
const maxSteps = 256

// openBeneath opens a path (O_PATH) component by component. It opens each component relative to its parent's descriptor
// and without following links. It reads links and walks their targets in the same way, so that a link can lead anywhere
// in the volume but not out of it. Missing directories are created.
func openBeneath(volume, sub string) (int, error) {
	if !filepath.IsLocal(sub) {
		return -1, errLeaves
	}
	base, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return -1, err
	}
	root, err := unix.Open(base, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	way := []int{root} // open directories, from the volume to the current one
	back := func(keep int) {
		for _, fd := range way[keep:] {
			_ = unix.Close(fd) // closing an O_PATH descriptor loses no data
		}
		way = way[:keep]
	}
	defer func() { back(0) }()
	rest := strings.Split(sub, "/")
	for steps := 0; len(rest) > 0; steps++ {
		if steps == maxSteps {
			return -1, unix.ELOOP
		}
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			if len(way) == 1 {
				return -1, errLeaves
			}
			back(len(way) - 1)
			continue
		}
		next, err := openStep(way[len(way)-1], name, root)
		if err != nil {
			return -1, err // the error omits the name, which may be the value of a variable
		}
		way = append(way, next)
		link, err := readLink(next)
		if err != nil {
			return -1, err
		}
		if link == "" {
			continue
		}
		back(len(way) - 1)
		if filepath.IsAbs(link) { // absolute links are host paths, as for the kubelet
			if link, err = filepath.Rel(base, link); err != nil {
				return -1, err
			}
			back(1) // link is now relative to the top of the volume; outside targets begin with ".." and are refused
		}
		rest = append(strings.Split(link, "/"), rest...)
	}
	found := way[len(way)-1]
	way = way[:len(way)-1]
	return found, nil
}

// openStep opens a name in a directory, or creates a directory of that name.
func openStep(at int, name string, root int) (int, error) {
	const flags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(at, name, flags, 0)
	if !errors.Is(err, unix.ENOENT) {
		return fd, err
	}
	if err := makeSub(at, name, root); err != nil {
		return -1, err
	}
	return unix.Openat(at, name, flags, 0)
}

// makeSub creates a directory with the mode of the volume, regardless of the umask, so that users other than root can
// also write to it. A container may replace the new directory before its mode is set, so makeSub sets the mode only of
// a directory that crishim's user owns.
func makeSub(at int, name string, root int) error {
	var volume, made unix.Stat_t
	if err := unix.Fstat(root, &volume); err != nil {
		return err
	}
	if err := unix.Mkdirat(at, name, volume.Mode&0o777); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	fd, err := unix.Openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &made); err != nil || int(made.Uid) != os.Geteuid() {
		return err
	}
	return unix.Fchmod(fd, volume.Mode&0o2777)
}

// readLink returns the target of an open link, or "" if fd is not a link.
func readLink(fd int) (string, error) {
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil || stat.Mode&unix.S_IFMT != unix.S_IFLNK {
		return "", err
	}
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd, "", buf)
	if err != nil {
		return "", err
	}
	return string(buf[:n]), nil
}
