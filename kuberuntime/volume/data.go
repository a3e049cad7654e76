package volume

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/internal/bounded"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/manifest"
)

type file struct {
	data []byte
	mode fs.FileMode // 0 means the volume's default
}

type files map[string]file

// payload returns the files of a configMap, secret, downwardAPI or projected volume, and their default mode.
func (m *Maker) payload(p *v1.Pod, v *v1.Volume, set *manifest.Set) (out files, mode fs.FileMode, err error) {
	// A configMap, secret or downwardAPI volume is handled as a projected volume with one source.
	var sources []v1.VolumeProjection
	var defaultMode *int32
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		sources, defaultMode = []v1.VolumeProjection{{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: s.LocalObjectReference, Items: s.Items, Optional: s.Optional}}}, s.DefaultMode
	case v.Secret != nil:
		s := v.Secret
		sources, defaultMode = []v1.VolumeProjection{{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: s.SecretName}, Items: s.Items, Optional: s.Optional}}}, s.DefaultMode
	case v.DownwardAPI != nil:
		sources, defaultMode = []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}}, v.DownwardAPI.DefaultMode
	case v.Projected != nil:
		sources, defaultMode = v.Projected.Sources, v.Projected.DefaultMode
	default:
		return nil, 0, errors.New("its source is not supported")
	}
	out = files{}
	for _, s := range sources {
		var data map[string][]byte
		switch {
		case s.ConfigMap != nil:
			optional := ptr.Deref(s.ConfigMap.Optional, false)
			if data, err = set.ConfigMap(p.Namespace, s.ConfigMap.Name, optional, true); err == nil {
				err = out.add(data, s.ConfigMap.Items, optional)
			}
		case s.Secret != nil:
			optional := ptr.Deref(s.Secret.Optional, false)
			if data, err = set.Secret(p.Namespace, s.Secret.Name, optional); err == nil {
				err = out.add(data, s.Secret.Items, optional)
			}
		case s.DownwardAPI != nil:
			err = m.downward(out, p, s.DownwardAPI.Items)
		}
		if err != nil {
			return nil, 0, err
		}
	}
	return out, perm(defaultMode), nil
}

// add adds the keys of items under their paths, or all keys if items is empty.
func (f files) add(data map[string][]byte, items []v1.KeyToPath, optional bool) error {
	if len(items) == 0 {
		for key, content := range data {
			f[key] = file{data: content}
		}
		return nil
	}
	for _, item := range items {
		content, ok := data[item.Key]
		if !ok {
			if optional {
				continue
			}
			return fmt.Errorf("no key %s", item.Key)
		}
		f[path.Clean(item.Path)] = file{data: content, mode: perm(item.Mode)}
	}
	return nil
}

func (m *Maker) downward(out files, p *v1.Pod, items []v1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		var text string
		var err error
		if item.FieldRef != nil {
			text, err = criconfig.Field(p, m.Host, nil, item.FieldRef.FieldPath)
		} else {
			text, err = criconfig.Resource(p, manifest.Container(p, item.ResourceFieldRef.ContainerName), m.Host, item.ResourceFieldRef)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", item.Path, err)
		}
		out[path.Clean(item.Path)] = file{data: []byte(text), mode: perm(item.Mode)}
	}
	return nil
}

func perm(mode *int32) fs.FileMode { return fs.FileMode(ptr.Deref(mode, 0)).Perm() }

// dataLink is a link to the directory with the current files. The name of the directory begins with dataPrefix. Top-level
// names of the volume are links through dataLink, so that one rename replaces all files at once.
const (
	dataLink   = "..data"
	dataPrefix = "..v"
)

// write updates the files of a volume. Containers mount the volume read-only. A container that can remount it may
// replace any part of the volume, so write stays inside an os.Root.
func write(dir string, want files, mode fs.FileMode, group *int64) (err error) {
	mode = cmp.Or(mode, 0o644)
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	current, err := root.Readlink(dataLink)
	ours := strings.HasPrefix(current, dataPrefix) && !strings.Contains(current, "/") // the container may have replaced the link
	if err != nil || !ours || !same(root, current, want, mode, group) {
		current = dataPrefix + rand.Text()
		if err := fill(root, current, want, mode, group); err != nil {
			return errors.Join(err, root.RemoveAll(current))
		}
		if err := swap(root, current); err != nil {
			return errors.Join(err, root.RemoveAll(current))
		}
	}
	return linkNames(root, current, want) // also after an earlier call that ended between its steps
}

func fill(root *os.Root, name string, want files, mode fs.FileMode, group *int64) error {
	if err := root.Mkdir(name, 0o755); err != nil {
		return err
	}
	fresh, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer fresh.Close()
	if err := fresh.Chmod(".", 0o755); err != nil { // regardless of the umask
		return err
	}
	for name, f := range want {
		if err := fresh.MkdirAll(path.Dir(name), 0o755); err != nil {
			return err
		}
		if err := fresh.WriteFile(name, f.data, 0o600); err != nil {
			return err
		}
		if err := fresh.Chmod(name, cmp.Or(f.mode, mode)); err != nil {
			return err
		}
	}
	if group == nil {
		return nil
	}
	return own(context.Background(), fresh, *group, 0o440)
}

// own changes the group of a tree to the pod's fsGroup, like the kubelet's SetVolumeOwnership. It adds bits to the
// modes, and new files inherit the group from their directory. It continues after an error and returns the first.
// Containers may change a claim at the same time: own ignores removed files, and skips directories with a path that is
// too long for the kernel. The root comes last, because OnRootMismatch skips a tree with the right root.
func own(ctx context.Context, root *os.Root, group int64, bits fs.FileMode) (failed error) {
	err := fs.WalkDir(root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err == nil && name != "." {
			err = ownEntry(root, name, group, bits)
		}
		if name == "." || !errors.Is(err, fs.ErrNotExist) {
			failed = cmp.Or(failed, err)
		}
		if entry != nil && entry.IsDir() && len(name) >= unix.PathMax {
			return fs.SkipDir
		}
		return nil
	})
	if err == nil {
		failed = cmp.Or(failed, ownEntry(root, ".", group, bits))
	}
	return cmp.Or(failed, err)
}

// ownEntry leaves a correct file unchanged, because the kernel drops setuid bits and capabilities when the group of a
// file is set.
func ownEntry(root *os.Root, name string, group int64, bits fs.FileMode) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if int64(info.Sys().(*syscall.Stat_t).Gid) != group {
		if err := root.Lchown(name, -1, int(group)); err != nil {
			return err
		}
	}
	if mode := owned(info, bits); info.Mode()&fs.ModeSymlink == 0 && mode&^info.Mode() != 0 {
		return root.Chmod(name, mode)
	}
	return nil
}

// owned returns the new mode of a file or directory in a volume with fsGroup. It drops the setuid and setgid bits of a
// file, because a container may replace the file before the mode is set.
func owned(info fs.FileInfo, bits fs.FileMode) fs.FileMode {
	if info.IsDir() {
		return info.Mode()&(fs.ModePerm|fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) | bits | fs.ModeSetgid | 0o110
	}
	return info.Mode().Perm() | bits
}

func swap(root *os.Root, target string) error {
	const tmp = "..data_tmp"
	if err := root.RemoveAll(tmp); err != nil {
		return err
	}
	if err := root.Symlink(target, tmp); err != nil {
		return err
	}
	if info, err := root.Lstat(dataLink); err == nil && info.IsDir() {
		if err := root.RemoveAll(dataLink); err != nil {
			return err
		}
	}
	return root.Rename(tmp, dataLink)
}

// linkNames creates the missing links to the files of a volume. It removes links to files that no longer exist, and the
// data directories of earlier calls, complete or not.
func linkNames(root *os.Root, current string, want files) error {
	tops := map[string]bool{}
	for name := range want {
		top, _, _ := strings.Cut(name, "/")
		tops[top] = true
	}
	entries, err := fs.ReadDir(root.FS(), ".")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		name := entry.Name()
		if strings.HasPrefix(name, dataPrefix) && name != current || !strings.HasPrefix(name, "..") && !tops[name] {
			if err := root.RemoveAll(name); err != nil {
				return err
			}
		}
	}
	for top := range tops {
		err := root.Symlink(filepath.Join(dataLink, top), top)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("link %s: %w", top, err)
		}
	}
	return nil
}

// same reports whether a data directory has exactly the wanted files. It compares names, content and modes.
// It does not compare the group, because a pod with another fsGroup has another uid and other volumes.
func same(root *os.Root, name string, want files, mode fs.FileMode, group *int64) bool {
	present, err := root.OpenRoot(name)
	if err != nil {
		return false
	}
	defer present.Close()
	found := 0
	err = fs.WalkDir(present.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, wanted := want[name]
		if !wanted {
			return errDiffers
		}
		found++
		return f.compare(present, name, mode, group)
	})
	return err == nil && found == len(want)
}

var errDiffers = errors.New("differs")

func (f file) compare(root *os.Root, name string, mode fs.FileMode, group *int64) error {
	opened, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer opened.Close()
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	wantMode := cmp.Or(f.mode, mode)
	if group != nil {
		wantMode |= 0o440
	}
	if !info.Mode().IsRegular() || info.Mode().Perm() != wantMode {
		return errDiffers
	}
	data, err := bounded.ReadAll(opened, int64(len(f.data)))
	if err != nil || !bytes.Equal(data, f.data) {
		return errDiffers
	}
	return nil
}
