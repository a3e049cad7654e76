package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
	v1 "k8s.io/api/core/v1"
)

// Made is a volume that is there.
type Made struct {
	Path     string // on the host
	ReadOnly bool   // whatever the mount says
	Image    *v1.ImageVolumeSource
}

// Maker makes volumes below a pod's folder.
type Maker struct {
	Dirs pod.Dirs
	Host criconfig.Host
	// MountTmpfs mounts a memory file system with options, BindMount a file or folder at
	// another place; tests replace them.
	MountTmpfs func(dir, options string) error
	BindMount  func(source, target string) error
}

// Setup makes all volumes of a pod, or brings the files of those that carry data up to
// date. It may be called for a running pod.
func (m *Maker) Setup(p *v1.Pod, set *manifest.Set) (map[string]Made, error) {
	if err := os.MkdirAll(m.Dirs.Pod(string(p.UID)), 0o750); err != nil {
		return nil, fmt.Errorf("make the pod's folder: %w", err)
	}
	out := map[string]Made{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		made, err := m.setup(p, v, set)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		out[v.Name] = made
	}
	return out, nil
}

func (m *Maker) setup(p *v1.Pod, v *v1.Volume, set *manifest.Set) (Made, error) {
	switch {
	case v.HostPath != nil:
		return Made{Path: v.HostPath.Path}, checkHostPath(v.HostPath)
	case v.Image != nil:
		return Made{Image: v.Image, ReadOnly: true}, nil
	case v.EmptyDir != nil:
		return m.emptyDir(p, v)
	}
	kind, files, mode, err := m.payload(p, v, set)
	if err != nil {
		return Made{}, err
	}
	dir := m.Dirs.Volume(string(p.UID), kind, v.Name)
	if err := makeDir(dir, 0o755); err != nil {
		return Made{}, err
	}
	return Made{Path: dir, ReadOnly: true}, write(dir, files, mode, fsGroup(p))
}

func fsGroup(p *v1.Pod) *int64 {
	if p.Spec.SecurityContext == nil {
		return nil
	}
	return p.Spec.SecurityContext.FSGroup
}

// makeDir makes a folder with a mode that the umask has no say in.
func makeDir(dir string, mode fs.FileMode) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.Chmod(dir, mode)
}

// emptyDir makes the folder under another name first, so that one that is there has its
// mode and group, whenever an earlier call ended; containers may have changed them since.
func (m *Maker) emptyDir(p *v1.Pod, v *v1.Volume) (Made, error) {
	dir := m.Dirs.Volume(string(p.UID), "empty-dir", v.Name)
	if v.EmptyDir.Medium == v1.StorageMediumMemory {
		return Made{Path: dir}, m.memoryDir(dir, p, v.EmptyDir)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return Made{Path: dir}, err
	}
	fresh := filepath.Join(filepath.Dir(dir), "."+v.Name) // no volume's name begins like this
	if err := os.MkdirAll(fresh, 0o755); err != nil {
		return Made{}, err
	}
	mode := fs.FileMode(0o777)
	if group := fsGroup(p); group != nil {
		mode |= fs.ModeSetgid
		if err := os.Lchown(fresh, -1, int(*group)); err != nil {
			return Made{}, err
		}
	}
	if err := os.Chmod(fresh, mode); err != nil {
		return Made{}, err
	}
	return Made{Path: dir}, os.Rename(fresh, dir)
}

// memoryDir mounts a memory file system that has its mode and group from the start.
func (m *Maker) memoryDir(dir string, p *v1.Pod, e *v1.EmptyDirVolumeSource) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mounts, err := mountsBelow(dir)
	if err != nil || slices.Contains(mounts, dir) {
		return err
	}
	options := "mode=0777"
	if group := fsGroup(p); group != nil {
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

// MountTmpfs mounts a memory file system. It needs root.
func MountTmpfs(dir, options string) error {
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// tmpfsSize is the least of the volume's limit, the pod's and the host's memory, as the
// kubelet has it; 0 where none is known.
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

// podMemory is what all containers of a pod may use together, 0 if one has no limit. Init
// containers that end run before the others; sidecars run beside all that follow.
func podMemory(p *v1.Pod) int64 {
	var sum, sidecars, most int64
	for i := range p.Spec.Containers {
		limit := p.Spec.Containers[i].Resources.Limits.Memory().Value()
		if limit == 0 {
			return 0
		}
		sum += limit
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		limit := c.Resources.Limits.Memory().Value()
		if limit == 0 {
			return 0
		}
		if pod.IsSidecar(c) {
			sidecars += limit
			limit = 0
		}
		most = max(most, sidecars+limit)
	}
	return max(sum+sidecars, most)
}
