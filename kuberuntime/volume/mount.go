package volume

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mounts are a container's volumeMounts as the CRI wants them. expand resolves $(VAR) in
// subPathExpr, imageRef the reference of an image volume.
func Mounts(c *v1.Container, made map[string]Made, expand func(string) string, imageRef func(string) string) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i := range c.VolumeMounts {
		m := &c.VolumeMounts[i]
		volume, ok := made[m.Name]
		if !ok {
			return nil, fmt.Errorf("mount %s: no volume %s", m.MountPath, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr)
		}
		mount := &runtimeapi.Mount{
			ContainerPath: absolute(m.MountPath), HostPath: volume.Path,
			Readonly: m.ReadOnly || volume.ReadOnly, Propagation: propagation(m.MountPropagation),
		}
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled {
			mount.RecursiveReadOnly = true
		}
		switch {
		case volume.Image != nil:
			mount.Image = &runtimeapi.ImageSpec{Image: imageRef(volume.Image.Reference), UserSpecifiedImage: volume.Image.Reference}
			mount.ImageSubPath = sub
		case sub != "":
			path, err := subPath(volume.Path, sub)
			if err != nil {
				return nil, fmt.Errorf("mount %s: subPath %q: %w", m.MountPath, sub, err)
			}
			mount.HostPath = path
		}
		out = append(out, mount)
	}
	return out, nil
}

// absolute puts a relative mount path at the root, as the kubelet does.
func absolute(path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return "/" + path
}

func propagation(mode *v1.MountPropagationMode) runtimeapi.MountPropagation {
	if mode != nil {
		switch *mode {
		case v1.MountPropagationHostToContainer:
			return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case v1.MountPropagationBidirectional:
			return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		}
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}

// subPath finds a path inside a volume, or makes a folder of that name, and refuses links
// that lead out of the volume: another container may have put them there.
func subPath(volume, sub string) (string, error) {
	if !filepath.IsLocal(sub) {
		return "", errors.New("leaves the volume")
	}
	root, err := os.OpenRoot(volume)
	if err != nil {
		return "", err
	}
	defer root.Close()
	_, err = root.Stat(sub)
	if errors.Is(err, fs.ErrNotExist) {
		err = makeSub(root, sub)
	}
	if err != nil {
		return "", err
	}
	base, err := filepath.EvalSymlinks(volume)
	if err != nil {
		return "", err
	}
	path, err := filepath.EvalSymlinks(filepath.Join(volume, sub))
	if err != nil {
		return "", err
	}
	if path != base && !strings.HasPrefix(path, base+string(filepath.Separator)) {
		return "", errors.New("leaves the volume")
	}
	return path, nil
}

// makeSub makes a folder that can be used as the volume itself can, by users other than
// root too.
func makeSub(root *os.Root, sub string) error {
	info, err := root.Stat(".")
	if err != nil {
		return err
	}
	if err := root.MkdirAll(sub, info.Mode().Perm()); err != nil {
		return err
	}
	return root.Chmod(sub, info.Mode()&(fs.ModePerm|fs.ModeSetgid)) // the umask has no say
}
