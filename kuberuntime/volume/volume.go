// Package volume creates the volumes of pods on this host and the mounts of their containers. It supports emptyDir (on
// disk or in memory), hostPath, configMap, secret, projected, downwardAPI, claims (directories) and image, which the
// container runtime itself mounts. The files of configMap, secret, projected and downwardAPI volumes change atomically:
// readers see either all old files or all new files.
package volume

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// Made is a volume on the host, or an image volume.
type Made struct {
	Path     string // on the host
	ReadOnly bool   // applies to all mounts
	Relabel  bool   // for SELinux; false for hostPath and images
	Image    *v1.ImageVolumeSource
}

type Maker struct {
	Dirs pod.Dirs
	Host criconfig.Host
	// Warn reports secret files that are stored on disk, and files that do not get the fsGroup. Setup accepts nil,
	// OwnClaims does not.
	Warn func(p *v1.Pod, format string, args ...any)
	// MountTmpfs mounts a tmpfs with options. BindMount bind-mounts a file or directory. Tests replace both.
	MountTmpfs func(dir, options string) error
	BindMount  func(source, target string) error
}

// Plan returns the volumes that Setup would return. It creates nothing.
func (m *Maker) Plan(p *v1.Pod) map[string]Made {
	out := map[string]Made{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		directory := func(kind string) Made {
			return Made{Path: m.Dirs.Volume(string(p.UID), kind, v.Name), ReadOnly: kind != "empty-dir", Relabel: true}
		}
		switch {
		case v.HostPath != nil:
			out[v.Name] = Made{Path: v.HostPath.Path}
		case v.PersistentVolumeClaim != nil:
			claim := v.PersistentVolumeClaim
			out[v.Name] = Made{Path: filepath.Join(p.Annotations[pod.VolumeDirAnnotation], p.Namespace, claim.ClaimName), ReadOnly: claim.ReadOnly, Relabel: true}
		case v.Image != nil:
			out[v.Name] = Made{Image: v.Image, ReadOnly: true}
		case v.EmptyDir != nil:
			out[v.Name] = directory("empty-dir")
		case v.ConfigMap != nil:
			out[v.Name] = directory("configmap")
		case v.Secret != nil:
			out[v.Name] = directory("secret")
		case v.DownwardAPI != nil:
			out[v.Name] = directory("downward-api")
		default:
			out[v.Name] = directory("projected")
		}
	}
	return out
}

// Setup creates all volumes of a pod, or updates the files of existing data volumes. It may be called for a running
// pod. It corresponds to the mounting part of the kubelet's volumeManager.
func (m *Maker) Setup(p *v1.Pod, set *manifest.Set) (map[string]Made, error) {
	if err := os.MkdirAll(m.Dirs.Pod(string(p.UID)), 0o750); err != nil {
		return nil, fmt.Errorf("make the pod's directory: %w", err)
	}
	out := m.Plan(p)
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if err := m.setup(p, v, out[v.Name].Path, set); err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return out, nil
}

func (m *Maker) setup(p *v1.Pod, v *v1.Volume, dir string, set *manifest.Set) error {
	group := p.Spec.SecurityContext.FSGroup
	switch {
	case v.HostPath != nil:
		return checkHostPath(v.HostPath)
	case v.PersistentVolumeClaim != nil:
		return claimDir(dir, group)
	case v.Image != nil:
		return nil // the container runtime mounts images
	case v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory:
		return m.memoryDir(dir, p, v.EmptyDir)
	case v.EmptyDir != nil:
		return emptyDir(dir, group)
	}
	files, mode, err := m.payload(p, v, set)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // regardless of the umask
		return err
	}
	if inMemory(v) {
		if err := m.mountSecrets(dir, p, v.Name); err != nil {
			return err
		}
	}
	return write(dir, files, mode, group)
}

// emptyDir creates the directory under a temporary name and renames it, so that a directory with the final name always
// has its mode and group.
func emptyDir(dir string, group *int64) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	fresh := filepath.Join(filepath.Dir(dir), "."+filepath.Base(dir)) // no volume's name begins with a dot
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return err
	}
	if err := openTo(fresh, group); err != nil {
		return err
	}
	return os.Rename(fresh, dir)
}

// openTo makes a directory writable for every user. New files in it inherit the pod's group.
func openTo(dir string, group *int64) error {
	mode := fs.FileMode(0o777)
	if group != nil {
		mode |= fs.ModeSetgid
		if err := os.Lchown(dir, -1, int(*group)); err != nil {
			return err
		}
	}
	return os.Chmod(dir, mode)
}

// claimDir creates a missing directory of a claim. Pods that share the claim may start at the same time, so claimDir
// creates the directory under its final name, unlike emptyDir. The mode of the namespace's directory keeps out other
// users of the host.
func claimDir(dir string, group *int64) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return err
	}
	err := os.Mkdir(dir, 0o750)
	if err == nil {
		return openTo(dir, group)
	}
	if info, statErr := os.Stat(dir); statErr == nil && info.IsDir() {
		return nil
	}
	return err
}

// OwnClaims sets the group of the files in the pod's writable claims to its fsGroup, as the kubelet does when it mounts
// a volume. With fsGroupChangePolicy OnRootMismatch, it skips a claim whose directory already has the group and mode.
// As with the kubelet, a pod starts even if some files cannot be changed, for example files of other users when the
// caller is not root. OwnClaims returns only errors of ctx.
func (m *Maker) OwnClaims(ctx context.Context, p *v1.Pod) error {
	group := p.Spec.SecurityContext.FSGroup
	if group == nil {
		return nil
	}
	always := ptr.Deref(p.Spec.SecurityContext.FSGroupChangePolicy, v1.FSGroupChangeAlways) == v1.FSGroupChangeAlways
	made := m.Plan(p)
	for _, v := range p.Spec.Volumes {
		if claim := v.PersistentVolumeClaim; claim == nil || claim.ReadOnly {
			continue
		}
		if err := ownClaim(ctx, made[v.Name].Path, *group, always); err != nil && ctx.Err() == nil {
			m.Warn(p, "volume %s: not all files have the fsGroup: %v", v.Name, err)
		}
	}
	return ctx.Err()
}

func ownClaim(ctx context.Context, dir string, group int64, always bool) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	const bits = 0o660
	if !always && int64(info.Sys().(*syscall.Stat_t).Gid) == group && info.Mode()&^fs.ModeDir == owned(info, bits) {
		return nil
	}
	return own(ctx, root, group, bits)
}

func (m *Maker) memoryDir(dir string, p *v1.Pod, e *v1.EmptyDirVolumeSource) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mounts, err := mountsBelow(dir)
	if err != nil || slices.Contains(mounts, dir) {
		return err
	}
	options := "mode=0777"
	if group := p.Spec.SecurityContext.FSGroup; group != nil {
		options = fmt.Sprintf("mode=2777,gid=%d", *group)
	}
	if size := m.tmpfsSize(p, e); size > 0 {
		options += fmt.Sprintf(",size=%d", size)
	}
	if err := m.MountTmpfs(dir, options); err != nil {
		return fmt.Errorf("mount a memory file system: %w", err)
	}
	return nil
}

// mountSecrets mounts a tmpfs, with noswap if the kernel supports it. A volume that is already on disk stays there,
// because containers use it. Without the right to mount, the volume stays on disk and mountSecrets warns.
func (m *Maker) mountSecrets(dir string, p *v1.Pod, name string) error {
	if _, err := os.Lstat(filepath.Join(dir, dataLink)); err == nil {
		return nil
	}
	mounts, err := mountsBelow(dir)
	if err != nil || slices.Contains(mounts, dir) {
		return err
	}
	err = m.MountTmpfs(dir, "mode=0755,noswap")
	if errors.Is(err, unix.EINVAL) {
		err = m.MountTmpfs(dir, "mode=0755")
	}
	if errors.Is(err, unix.EPERM) {
		if m.Warn != nil {
			m.Warn(p, "volume %s is on disk: only root may mount a memory file system for it", name)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("mount a memory file system: %w", err)
	}
	return nil
}

func MountTmpfs(dir, options string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// tmpfsSize returns the smallest known value of the volume's limit, the pod's memory limit and the host's memory, or 0
// if all are unknown. The kubelet's calculateEmptyDirMemorySize follows the same rule.
func (m *Maker) tmpfsSize(p *v1.Pod, e *v1.EmptyDirVolumeSource) int64 {
	limits := []int64{m.Host.Memory, podMemory(p)}
	if e.SizeLimit != nil {
		limits = append(limits, e.SizeLimit.Value())
	}
	limits = slices.DeleteFunc(limits, func(n int64) bool { return n <= 0 })
	if len(limits) == 0 {
		return 0
	}
	return slices.Min(limits)
}

// podMemory returns the memory limit of a pod. If the pod itself has no limit, podMemory returns the largest sum of the
// limits of containers that run at the same time, or 0 if a container has no limit.
func podMemory(p *v1.Pod) int64 {
	if p.Spec.Resources != nil && !p.Spec.Resources.Limits.Memory().IsZero() {
		return p.Spec.Resources.Limits.Memory().Value()
	}
	all := manifest.Containers(p)[:len(p.Spec.InitContainers)+len(p.Spec.Containers)]
	if slices.ContainsFunc(all, func(c *v1.Container) bool { return c.Resources.Limits.Memory().IsZero() }) {
		return 0
	}
	sum := manifest.Together(&p.Spec, func(c *v1.Container) resource.Quantity { return *c.Resources.Limits.Memory() })
	return sum.Value()
}

// checkHostPath creates a missing path if its type says so, and refuses a path of another type.
func checkHostPath(h *v1.HostPathVolumeSource) error {
	kind := ptr.Deref(h.Type, v1.HostPathUnset)
	info, err := os.Stat(h.Path)
	if errors.Is(err, fs.ErrNotExist) {
		switch kind {
		case v1.HostPathDirectoryOrCreate:
			return os.MkdirAll(h.Path, 0o755)
		case v1.HostPathFileOrCreate:
			// A container may have created a link there. O_EXCL does not follow links.
			f, err := os.OpenFile(h.Path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
			switch {
			case errors.Is(err, fs.ErrExist):
				return nil
			case err != nil:
				return err
			}
			return f.Close()
		case v1.HostPathUnset:
			return nil // without a type, the container runtime decides whether to create the path
		}
	}
	if err != nil {
		if kind == v1.HostPathUnset {
			return nil
		}
		return err
	}
	wanted, typed := map[v1.HostPathType]fs.FileMode{
		v1.HostPathDirectory: fs.ModeDir, v1.HostPathDirectoryOrCreate: fs.ModeDir, v1.HostPathFile: 0, v1.HostPathFileOrCreate: 0,
		v1.HostPathSocket: fs.ModeSocket, v1.HostPathCharDev: fs.ModeDevice | fs.ModeCharDevice, v1.HostPathBlockDev: fs.ModeDevice,
	}[kind]
	if typed && info.Mode().Type() != wanted {
		return fmt.Errorf("%s is no %s", h.Path, kind)
	}
	return nil
}

// Release removes the in-memory volumes of a finished pod. It also removes Secrets that are stored on disk.
func (m *Maker) Release(p *v1.Pod) error {
	if err := unmountBelow(m.Dirs.Pod(string(p.UID))); err != nil {
		return err
	}
	made := m.Plan(p)
	var errs []error
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; inMemory(v) {
			errs = append(errs, RemoveAll(made[v.Name].Path))
		}
	}
	return errors.Join(errs...)
}

// inMemory reports whether a volume is kept in memory. Like the kubelet, it selects each emptyDir with medium Memory and
// each volume that may hold secrets.
func inMemory(v *v1.Volume) bool {
	return v.EmptyDir != nil && v.EmptyDir.Medium == v1.StorageMediumMemory || v.Secret != nil || v.Projected != nil || v.DownwardAPI != nil
}

// Teardown unmounts and removes a pod's directory, with the volumes and sub paths that Setup and Mounts created there.
// Claims and host paths stay.
func (m *Maker) Teardown(uid string) error {
	if !pod.IsUID(uid) {
		return fmt.Errorf("%q is no pod uid", uid)
	}
	dir := m.Dirs.Pod(uid)
	if err := unmountBelow(dir); err != nil {
		return err
	}
	return RemoveAll(dir)
}

// RemoveAll removes a directory and its content. It fails if something is mounted at or below the directory.
func RemoveAll(dir string) error {
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		return fmt.Errorf("remove %s: %s is still mounted", dir, mounts[len(mounts)-1])
	}
	return os.RemoveAll(dir)
}

// unmountBelow unmounts everything at or below a directory. It detaches the topmost mount first, together with all mounts
// below it: the path of a lower mount may lead through a volume, where a container can replace a directory with a link.
// It lists the mounts again after each pass, because unmounting may reveal hidden mounts.
func unmountBelow(dir string) error {
	for before := -1; ; {
		mounts, err := mountsBelow(dir)
		if err != nil || len(mounts) == 0 {
			return err
		}
		var failed error
		for _, at := range mounts {
			if err := detach(at); err != nil {
				failed = errors.Join(failed, fmt.Errorf("unmount %s: %w", at, err))
			}
		}
		if len(mounts) == before {
			return failed
		}
		before = len(mounts)
	}
}

// detach unmounts a mount and all mounts below it. A container's mount in a Bidirectional volume is propagated to the
// volume and to its sub paths. Without MS_PRIVATE, the kernel would also unmount the container's mount in these places.
func detach(at string) error {
	if err := unix.Mount("", at, "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Unmount(at, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH)
}

// mountsBelow lists the mount points at or below a directory in the order in which they were mounted.
func mountsBelow(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(real))
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	var out []string
	for _, m := range mounts {
		out = append(out, dir+strings.TrimPrefix(m.Mountpoint, real))
	}
	return out, nil
}
