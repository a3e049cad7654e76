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

// Mounts returns a container's volumeMounts as the CRI wants them. expand resolves $(VAR) in
// subPathExpr, imageRef the reference of an image volume.
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
			if sub, err = expand(at.SubPathExpr); err != nil { // it would become the name of a directory
				return nil, fmt.Errorf("mount %s: subPathExpr %q: %w", at.MountPath, at.SubPathExpr, err)
			}
		}
		mount := newMount(at, volume, sub)
		if mount.Image != nil {
			mount.Image.Image = imageRef(volume.Image.Reference)
		} else if sub != "" {
			path, err := m.subPath(volume, sub, m.Dirs.SubPath(string(p.UID), at.Name, c.Name, i), at.MountPropagation)
			if err != nil { // with the path as it was written: a variable of it may be secret
				return nil, fmt.Errorf("mount %s: subPath %q: %w", at.MountPath, at.SubPath+at.SubPathExpr, err)
			}
			mount.HostPath = path
		}
		out = append(out, mount)
	}
	return out, nil
}

// PlanMounts returns the mounts that Mounts would make, with sub paths as they are written.
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

// newMount returns a mount of a whole volume, or of a path in an image.
func newMount(at *v1.VolumeMount, volume Made, sub string) *runtimeapi.Mount {
	mount := &runtimeapi.Mount{
		ContainerPath: at.MountPath, HostPath: volume.Path, Readonly: at.ReadOnly || volume.ReadOnly, SelinuxRelabel: volume.Relabel,
		RecursiveReadOnly: ptr.Deref(at.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled) == v1.RecursiveReadOnlyEnabled,
	}
	if !filepath.IsAbs(at.MountPath) {
		mount.ContainerPath = "/" + at.MountPath // as the kubelet has it
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

// subPath finds a path inside a volume, or makes a directory of that name, and returns where
// the runtime finds it. Containers that have the volume may put a link in the place of
// any directory of it, at any moment, and the runtime would follow it: so the path is opened
// once, beneath the volume, and what was opened is mounted at target, where no container
// comes. Without the right to mount, only volumes that no container writes to have sub paths.
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

// bind mounts the file or directory behind fd at target. It keeps the same mount of an earlier attempt or process.
func (m *Maker) bind(fd int, target string) error {
	var want, have unix.Stat_t
	if err := unix.Fstat(fd, &want); err != nil {
		return err
	}
	if unix.Stat(target, &have) == nil && have.Dev == want.Dev && have.Ino == want.Ino {
		return nil
	}
	for detach(target) == nil { // what is no mount is an error
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

// BindMount mounts a file or directory at a second place. It needs root.
func BindMount(source, target string) error {
	return unix.Mount(source, target, "", unix.MS_BIND, "")
}

// maxSteps bounds the components of a path with all links in it.
const maxSteps = 256

// openBeneath opens a path (O_PATH) from component to component, each by the descriptor of
// the one before and without following links. Links are read and walked in the same way,
// so that they may lead anywhere in the volume and nowhere else. Missing directories are made.
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
	way := []int{root} // open directories from the volume to where we are
	back := func(keep int) {
		for _, fd := range way[keep:] {
			_ = unix.Close(fd) // nothing was written
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
			return -1, err // without the name, which may be the value of a variable
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
		if filepath.IsAbs(link) { // on the host, as for the kubelet
			if link, err = filepath.Rel(base, link); err != nil {
				return -1, err
			}
			back(1) // from where .. leaves the volume
		}
		rest = append(strings.Split(link, "/"), rest...)
	}
	found := way[len(way)-1]
	way = way[:len(way)-1]
	return found, nil
}

// openStep opens a name in a directory, or makes a directory of that name.
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

// makeSub makes a directory that can be used as the volume itself can, by users other than
// root too: the umask has no say. A container may put another directory of the volume in its
// place before the mode is set: then only if it is ours, too.
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

// readLink returns where an open link leads, "" for what is no link.
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
