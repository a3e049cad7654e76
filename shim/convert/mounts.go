package convert

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type MountFeatures struct {
	// CreateMountpoint: the engine can create a missing host path (API 1.42). Older engines do so only for text mounts.
	CreateMountpoint bool
	// RecursiveReadOnly: read-only mounts are recursive by default (API 1.44).
	RecursiveReadOnly bool
	SELinux           bool
}

func Mounts(ms []*runtimeapi.Mount, f MountFeatures) (binds []string, mounts []mount.Mount, err error) {
	for _, m := range ms {
		if m.GetImage().GetImage() != "" {
			continue
		}
		if err := checkMount(m, f); err != nil {
			return nil, nil, fmt.Errorf("mount %q: %w", m.GetContainerPath(), err)
		}
		target, propagation := path.Join("/", m.GetContainerPath()), propagations[m.GetPropagation()]
		if asText(m, f) {
			options := string(propagation)
			if m.GetReadonly() {
				options += ",ro"
			}
			if m.GetSelinuxRelabel() {
				options += ",Z"
			}
			binds = append(binds, m.GetHostPath()+":"+target+":"+options)
			continue
		}
		options := &mount.BindOptions{Propagation: propagation, CreateMountpoint: f.CreateMountpoint}
		if m.GetReadonly() && f.RecursiveReadOnly {
			options.ReadOnlyForceRecursive = m.GetRecursiveReadOnly()
			options.ReadOnlyNonRecursive = !m.GetRecursiveReadOnly()
		}
		mounts = append(mounts, mount.Mount{
			Type: mount.TypeBind, Source: m.GetHostPath(), Target: target, ReadOnly: m.GetReadonly(), BindOptions: options,
		})
	}
	return binds, mounts, nil
}

func checkMount(m *runtimeapi.Mount, f MountFeatures) error {
	_, known := propagations[m.GetPropagation()]
	switch {
	case m.GetContainerPath() == "":
		return fmt.Errorf("container_path is empty: %w", errdefs.ErrInvalidArgument)
	case m.GetHostPath() == "":
		return fmt.Errorf("host_path is empty: %w", errdefs.ErrInvalidArgument)
	case !path.IsAbs(m.GetHostPath()):
		return fmt.Errorf("host_path %q is not absolute: %w", m.GetHostPath(), errdefs.ErrInvalidArgument)
	case m.GetSelinuxRelabel() && f.SELinux && !asText(m, f):
		return fmt.Errorf("the engine cannot relabel a mount for SELinux that is recursively read-only or has a colon in its path: %w",
			errdefs.ErrNotImplemented)
	case !known:
		return fmt.Errorf("mount propagation %d: %w", m.GetPropagation(), errdefs.ErrInvalidArgument)
	case m.GetRecursiveReadOnly() && !m.GetReadonly():
		return fmt.Errorf("recursive_read_only needs readonly: %w", errdefs.ErrInvalidArgument)
	case m.GetRecursiveReadOnly() && m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return fmt.Errorf("recursive_read_only needs private propagation: %w", errdefs.ErrInvalidArgument)
	case m.GetRecursiveReadOnly() && !f.RecursiveReadOnly:
		return fmt.Errorf("RROUnsupported: recursive read-only mounts need Docker Engine 25 (API 1.44): %w", errdefs.ErrNotImplemented)
	}
	return CheckMountOptions(m)
}

// CheckMountOptions rejects options that the engine cannot apply to mounts of paths or images.
func CheckMountOptions(m *runtimeapi.Mount) error {
	switch {
	case len(m.GetUidMappings())+len(m.GetGidMappings()) > 0:
		return fmt.Errorf("the engine has no id-mapped mounts: %w", errdefs.ErrNotImplemented)
	case len(m.GetMountOptions()) > 0:
		return fmt.Errorf("the engine has no mount options: %w", errdefs.ErrNotImplemented)
	}
	return nil
}

// asText reports whether a mount is sent as "source:target:options". Only this form supports SELinux relabelling and,
// on old engines, the creation of a missing source. Paths in this form cannot contain a colon.
func asText(m *runtimeapi.Mount, f MountFeatures) bool {
	if strings.Contains(m.GetHostPath()+m.GetContainerPath(), ":") || m.GetRecursiveReadOnly() {
		return false
	}
	if m.GetReadonly() && f.RecursiveReadOnly && !f.SELinux {
		// As text the mount would be recursively read-only. Without SELinux the label does not require the text form.
		return false
	}
	return m.GetSelinuxRelabel() || !f.CreateMountpoint
}

var propagations = map[runtimeapi.MountPropagation]mount.Propagation{
	runtimeapi.MountPropagation_PROPAGATION_PRIVATE:           mount.PropagationRPrivate,
	runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER: mount.PropagationRSlave,
	runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:     mount.PropagationRShared,
}

func propagation(p mount.Propagation) runtimeapi.MountPropagation {
	switch p {
	case mount.PropagationRSlave, mount.PropagationSlave:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case mount.PropagationRShared, mount.PropagationShared:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	}
	return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
}

func CRIMounts(points []container.MountPoint, hc *container.HostConfig) []*runtimeapi.Mount {
	recursive := map[string]bool{}
	if hc != nil {
		for _, m := range hc.Mounts {
			recursive[m.Target] = m.BindOptions != nil && m.BindOptions.ReadOnlyForceRecursive
		}
	}
	var ms []*runtimeapi.Mount
	for _, p := range points {
		if p.Type != mount.TypeBind && p.Type != "" {
			continue
		}
		ms = append(ms, &runtimeapi.Mount{
			ContainerPath:     p.Destination,
			HostPath:          p.Source,
			Readonly:          !p.RW,
			Propagation:       propagation(p.Propagation),
			SelinuxRelabel:    slices.Contains(strings.Split(strings.ToLower(p.Mode), ","), "z"),
			RecursiveReadOnly: recursive[p.Destination],
		})
	}
	return ms
}
