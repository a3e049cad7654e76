package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"
	"golang.org/x/sys/unix"

	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
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
	// MountTmpfs mounts a memory file system; tests replace it. The size is 0 for no limit.
	MountTmpfs func(dir string, size int64) error
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

func (m *Maker) emptyDir(p *v1.Pod, v *v1.Volume) (Made, error) {
	dir := m.Dirs.Volume(string(p.UID), "empty-dir", v.Name)
	_, err := os.Stat(dir)
	isNew := errors.Is(err, fs.ErrNotExist)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Made{}, err
	}
	if v.EmptyDir.Medium == v1.StorageMediumMemory {
		mounts, err := mountsBelow(dir)
		if err != nil {
			return Made{}, err
		}
		if !slices.Contains(mounts, dir) {
			if err := m.MountTmpfs(dir, m.tmpfsSize(p, v.EmptyDir)); err != nil {
				return Made{}, fmt.Errorf("mount a memory file system: %w", err)
			}
			isNew = true
		}
	}
	if !isNew { // it may have been changed from inside
		return Made{Path: dir}, nil
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		return Made{}, err
	}
	return Made{Path: dir}, own(dir, fsGroup(p), 0o660)
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

// MountTmpfs mounts a memory file system. It needs root.
func MountTmpfs(dir string, size int64) error {
	options := ""
	if size > 0 {
		options = fmt.Sprintf("size=%d", size)
	}
	return unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
}

// own gives a tree to the pod's fsGroup, as the kubelet does: files get the given bits,
// folders pass the group on to what is made in them.
func own(root string, group *int64, bits fs.FileMode) error {
	if group == nil {
		return nil
	}
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := os.Lchown(path, -1, int(*group)); err != nil {
			return err
		}
		if entry.Type()&fs.ModeSymlink != 0 {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		mode := info.Mode().Perm() | bits
		if entry.IsDir() {
			mode |= fs.ModeSetgid | 0o110
		}
		return os.Chmod(path, mode)
	})
}

// Teardown removes all that Setup made for a pod.
func (m *Maker) Teardown(uid string) error {
	dir := m.Dirs.Pod(uid)
	if uid == "" || strings.ContainsRune(uid, filepath.Separator) || uid == "." || uid == ".." {
		return fmt.Errorf("%q is no pod uid", uid)
	}
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, at := range slices.Backward(mounts) {
		if err := unix.Unmount(at, unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("unmount %s: %w", at, err) // removing through a mount would destroy foreign files
		}
	}
	return os.RemoveAll(dir)
}

// mountsBelow lists mount points at or below a folder, in the order of mounting.
func mountsBelow(dir string) ([]string, error) {
	real, err := filepath.EvalSymlinks(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("read mounts: %w", err)
	}
	return parseMounts(string(text), dir, real), nil
}

// parseMounts names the mounts by dir, which may lead to real through links.
func parseMounts(mountinfo, dir, real string) []string {
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var out []string
	for line := range strings.Lines(mountinfo) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		at := unescape.Replace(fields[4])
		if rest, ok := strings.CutPrefix(at, real); ok && (rest == "" || rest[0] == '/') {
			out = append(out, dir+rest)
		}
	}
	return out
}
