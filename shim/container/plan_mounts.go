package container

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"unicode"

	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/mount"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/shim/convert"
	"github.com/crishim/crishim/shim/internal/lifecycle"
	"github.com/crishim/crishim/shim/state"
)

func planMounts(p *lifecycle.Spec, r *runtimeapi.CreateContainerRequest, f facts) (err error) {
	ms := r.GetConfig().GetMounts()
	p.Host.Binds, p.Host.Mounts, err = convert.Mounts(ms, convert.MountFeatures{
		CreateMountpoint:  f.speaks("1.42"),
		RecursiveReadOnly: f.speaks("1.44"),
		SELinux:           convert.HasSecurity(f.info.SecurityOptions, "selinux"),
	})
	if err != nil {
		return err
	}
	var noted []state.ImageMount
	for _, m := range ms {
		if m.GetImage().GetImage() == "" {
			continue
		}
		i := f.mounted[m.GetImage().GetImage()]
		em, err := planImageMount(m, i, f)
		if err != nil {
			return fmt.Errorf("ImageVolumeMountFailed: mount %q: %w", m.GetContainerPath(), err)
		}
		p.Host.Mounts = append(p.Host.Mounts, em)
		noted = append(noted, state.ImageMount{Path: em.Target, Image: m.GetImage().GetImage(), ID: i.ID, SubPath: m.GetImageSubPath()})
	}
	if len(noted) == 0 {
		return nil
	}
	b, err := json.Marshal(noted)
	if err != nil {
		return fmt.Errorf("image mounts as a label: %w", err)
	}
	p.Config.Labels[state.LabelOwnMounts] = string(b)
	return nil
}

// imageMountAPI is the Engine API from which on the engine mounts images (Engine 28).
const imageMountAPI = "1.48"

// planImageMount mounts an image read-only. Engines from 28 on can do that
// themselves. Older ones can mount a volume whose content is an overlay of the
// image's layers: the engine mounts it when the container starts, unmounts it
// when it ends, and removes it with the container.
func planImageMount(m *runtimeapi.Mount, i image.InspectResponse, f facts) (mount.Mount, error) {
	if err := convert.CheckMountOptions(m); err != nil {
		return mount.Mount{}, err
	}
	target := path.Join("/", m.GetContainerPath())
	if f.speaks(imageMountAPI) {
		em := mount.Mount{Type: mount.TypeImage, Source: i.ID, Target: target}
		if m.GetImageSubPath() != "" {
			em.ImageOptions = &mount.ImageOptions{Subpath: m.GetImageSubPath()}
		}
		return em, nil
	}
	dirs := layerDirs(i.GraphDriver)
	if len(dirs) == 0 {
		return mount.Mount{}, unable("images can be mounted with Docker Engine 28 (API 1.48) or the overlay2 storage driver; this one speaks API %s with %s",
			f.api, i.GraphDriver.Name)
	}
	if m.GetImageSubPath() != "" {
		var err error
		if dirs, err = subLayers(dirs, m.GetImageSubPath()); err != nil {
			return mount.Mount{}, err
		}
	}
	options, err := overlay(dirs)
	if err != nil {
		return mount.Mount{}, err
	}
	return mount.Mount{
		Type: mount.TypeVolume, Target: target,
		VolumeOptions: &mount.VolumeOptions{NoCopy: true, DriverConfig: &mount.Driver{Name: "local", Options: options}},
	}, nil
}

// overlay is the local volume driver's description of the layers, the topmost
// first. An overlay needs two of them; a single layer is bound as it is. The
// options have no way to quote a name.
func overlay(dirs []string) (map[string]string, error) {
	for _, dir := range dirs {
		if !plainName(dir) {
			return nil, invalid("the layer %q has a name that an overlay cannot be made of", dir)
		}
	}
	if len(dirs) == 1 {
		return map[string]string{"type": "none", "device": dirs[0], "o": "bind,ro"}, nil
	}
	return map[string]string{"type": "overlay", "device": "overlay", "o": "ro,lowerdir=" + strings.Join(dirs, ":")}, nil
}

// plainName reports whether a path means only itself among the options of an
// overlay, and of the tools that pass them on.
func plainName(name string) bool {
	return !strings.ContainsFunc(name, func(r rune) bool { return strings.ContainsRune(`,:\"`, r) || unicode.IsControl(r) })
}

// imageMounts are the label's mounts as ContainerStatus has them.
func imageMounts(labels map[string]string) []*runtimeapi.Mount {
	noted := state.ImageMounts(labels)
	ms := make([]*runtimeapi.Mount, 0, len(noted))
	for _, n := range noted {
		ms = append(ms, &runtimeapi.Mount{
			ContainerPath: n.Path,
			Readonly:      true,
			ImageSubPath:  n.SubPath,
			Image:         &runtimeapi.ImageSpec{Image: n.Image, ImageRef: n.ID},
		})
	}
	return ms
}
