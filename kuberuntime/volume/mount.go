package volume

import (
	"fmt"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Mounts are a container's volumeMounts as the CRI wants them. expand resolves $(VAR) in
// subPathExpr, imageRef the reference of an image volume.
func (m *Maker) Mounts(p *v1.Pod, c *v1.Container, made map[string]Made, expand func(string) string, imageRef func(string) string) ([]*runtimeapi.Mount, error) {
	var out []*runtimeapi.Mount
	for i := range c.VolumeMounts {
		at := &c.VolumeMounts[i]
		volume, ok := made[at.Name]
		if !ok {
			return nil, fmt.Errorf("mount %s: no volume %s", at.MountPath, at.Name)
		}
		sub := at.SubPath
		if at.SubPathExpr != "" {
			sub = expand(at.SubPathExpr)
		}
		mount := &runtimeapi.Mount{
			ContainerPath: absolute(at.MountPath), HostPath: volume.Path,
			Readonly: at.ReadOnly || volume.ReadOnly, Propagation: propagation(at.MountPropagation),
		}
		if at.RecursiveReadOnly != nil && *at.RecursiveReadOnly == v1.RecursiveReadOnlyEnabled {
			mount.RecursiveReadOnly = true
		}
		switch {
		case volume.Image != nil:
			mount.Image = &runtimeapi.ImageSpec{Image: imageRef(volume.Image.Reference), UserSpecifiedImage: volume.Image.Reference}
			mount.ImageSubPath = sub
		case sub != "":
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
