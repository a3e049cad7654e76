package volume

import (
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Plan is where Setup would make a pod's volumes.
func (m *Maker) Plan(p *v1.Pod) map[string]Made {
	out := map[string]Made{}
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		at := func(kind string) Made {
			return Made{Path: m.Dirs.Volume(string(p.UID), kind, v.Name), ReadOnly: kind != "empty-dir"}
		}
		switch {
		case v.HostPath != nil:
			out[v.Name] = Made{Path: v.HostPath.Path}
		case v.Image != nil:
			out[v.Name] = Made{Image: v.Image, ReadOnly: true}
		case v.EmptyDir != nil:
			out[v.Name] = at("empty-dir")
		case v.ConfigMap != nil:
			out[v.Name] = at("configmap")
		case v.Secret != nil:
			out[v.Name] = at("secret")
		case v.DownwardAPI != nil:
			out[v.Name] = at("downward-api")
		default:
			out[v.Name] = at("projected")
		}
	}
	return out
}

// PlanMounts are the mounts that Mounts would make, with sub paths as they are written.
func PlanMounts(c *v1.Container, made map[string]Made) []*runtimeapi.Mount {
	var out []*runtimeapi.Mount
	for _, m := range c.VolumeMounts {
		volume := made[m.Name]
		mount := &runtimeapi.Mount{
			ContainerPath: absolute(m.MountPath), HostPath: volume.Path,
			Readonly: m.ReadOnly || volume.ReadOnly, Propagation: propagation(m.MountPropagation),
		}
		sub := m.SubPath + m.SubPathExpr
		switch {
		case volume.Image != nil:
			mount.Image, mount.ImageSubPath = &runtimeapi.ImageSpec{Image: volume.Image.Reference}, sub
		case sub != "":
			mount.HostPath = filepath.Join(volume.Path, sub)
		}
		out = append(out, mount)
	}
	return out
}
