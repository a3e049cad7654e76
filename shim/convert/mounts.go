package convert

import (
	"fmt"
	"path"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// MountFeatures says what the engine on the other side can do with mounts.
type MountFeatures struct {
	// CreateMountpoint: the engine makes a missing host path (API 1.42). An
	// older engine does that only for the text form of a bind.
	CreateMountpoint bool
	// RecursiveReadOnly: the engine knows recursive read-only mounts, and
	// makes read-only mounts recursive unless told otherwise (API 1.44).
	RecursiveReadOnly bool
	// SELinux: the engine's host has it, so a label that is not set matters.
	SELinux bool
}

// Mounts splits the host mounts of a container into the engine's two forms.
// Mounts of images are for the caller, who knows images; they are skipped.
func Mounts(ms []*runtimeapi.Mount, f MountFeatures) (binds []string, mounts []mount.Mount, err error) {
	for _, m := range ms {
		if m.GetImage().GetImage() != "" {
			continue
		}
		if err := checkMount(m, f); err != nil {
			return nil, nil, fmt.Errorf("mount %q: %w", m.GetContainerPath(), err)
		}
		if asText(m, f) {
			binds = append(binds, bind(m))
			continue
		}
		mounts = append(mounts, bindMount(m, f))
	}
	return binds, mounts, nil
}

func checkMount(m *runtimeapi.Mount, f MountFeatures) error {
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
	}
	if err := CheckMountOptions(m); err != nil {
		return err
	}
	if m.GetRecursiveReadOnly() {
		return checkRecursive(m, f)
	}
	_, err := EnginePropagation(m.GetPropagation())
	return err
}

// CheckMountOptions refuses what the engine has for no mount, of a path or of
// an image.
func CheckMountOptions(m *runtimeapi.Mount) error {
	switch {
	case len(m.GetUidMappings())+len(m.GetGidMappings()) > 0:
		return fmt.Errorf("the engine has no id-mapped mounts: %w", errdefs.ErrNotImplemented)
	case len(m.GetMountOptions()) > 0:
		return fmt.Errorf("the engine has no mount options: %w", errdefs.ErrNotImplemented)
	}
	return nil
}

func checkRecursive(m *runtimeapi.Mount, f MountFeatures) error {
	switch {
	case !m.GetReadonly():
		return fmt.Errorf("recursive_read_only needs readonly: %w", errdefs.ErrInvalidArgument)
	case m.GetPropagation() != runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return fmt.Errorf("recursive_read_only needs private propagation: %w", errdefs.ErrInvalidArgument)
	case !f.RecursiveReadOnly:
		return fmt.Errorf("RROUnsupported: recursive read-only mounts need Docker Engine 25 (API 1.44): %w", errdefs.ErrNotImplemented)
	}
	return nil
}

// asText reports whether a mount goes out as "source:target:options". Only that
// form relabels for SELinux, and on old engines only that form makes a missing
// source; a path with a colon cannot be written in it.
func asText(m *runtimeapi.Mount, f MountFeatures) bool {
	if strings.Contains(m.GetHostPath()+m.GetContainerPath(), ":") || m.GetRecursiveReadOnly() {
		return false
	}
	if m.GetReadonly() && f.RecursiveReadOnly && !f.SELinux {
		// As text it would be recursive, and there is no label to set.
		return false
	}
	return m.GetSelinuxRelabel() || !f.CreateMountpoint
}

func bind(m *runtimeapi.Mount) string {
	propagation, _ := EnginePropagation(m.GetPropagation()) // checkMount has seen it
	options := []string{string(propagation)}
	if m.GetReadonly() {
		options = append(options, "ro")
	}
	if m.GetSelinuxRelabel() {
		options = append(options, "Z")
	}
	return m.GetHostPath() + ":" + containerPath(m) + ":" + strings.Join(options, ",")
}

func bindMount(m *runtimeapi.Mount, f MountFeatures) mount.Mount {
	propagation, _ := EnginePropagation(m.GetPropagation())
	options := &mount.BindOptions{Propagation: propagation, CreateMountpoint: f.CreateMountpoint}
	if m.GetReadonly() && f.RecursiveReadOnly {
		options.ReadOnlyForceRecursive = m.GetRecursiveReadOnly()
		options.ReadOnlyNonRecursive = !m.GetRecursiveReadOnly()
	}
	return mount.Mount{
		Type:        mount.TypeBind,
		Source:      m.GetHostPath(),
		Target:      containerPath(m),
		ReadOnly:    m.GetReadonly(),
		BindOptions: options,
	}
}

// containerPath is the target as the engine wants it: absolute.
func containerPath(m *runtimeapi.Mount) string {
	return path.Join("/", m.GetContainerPath())
}

// EnginePropagation is the engine's word for a CRI mount propagation.
func EnginePropagation(p runtimeapi.MountPropagation) (mount.Propagation, error) {
	switch p {
	case runtimeapi.MountPropagation_PROPAGATION_PRIVATE:
		return mount.PropagationRPrivate, nil
	case runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER:
		return mount.PropagationRSlave, nil
	case runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL:
		return mount.PropagationRShared, nil
	default:
		return "", fmt.Errorf("mount propagation %d: %w", p, errdefs.ErrInvalidArgument)
	}
}

// Propagation is the CRI word for the engine's; what is unknown or not set is private.
func Propagation(p mount.Propagation) runtimeapi.MountPropagation {
	switch p {
	case mount.PropagationRSlave, mount.PropagationSlave:
		return runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
	case mount.PropagationRShared, mount.PropagationShared:
		return runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
	default:
		return runtimeapi.MountPropagation_PROPAGATION_PRIVATE
	}
}

// CRIMounts reports the host mounts of an inspected container. What was asked
// for beyond source, target and mode is only in the host configuration.
func CRIMounts(points []container.MountPoint, hc *container.HostConfig) []*runtimeapi.Mount {
	var ms []*runtimeapi.Mount
	for _, p := range points {
		if p.Type != mount.TypeBind && p.Type != "" {
			continue
		}
		ms = append(ms, &runtimeapi.Mount{
			ContainerPath:     p.Destination,
			HostPath:          p.Source,
			Readonly:          !p.RW,
			Propagation:       Propagation(p.Propagation),
			SelinuxRelabel:    relabelled(p.Mode),
			RecursiveReadOnly: forcedRecursive(hc, p.Destination),
		})
	}
	return ms
}

func relabelled(mode string) bool {
	for option := range strings.SplitSeq(mode, ",") {
		if option == "z" || option == "Z" {
			return true
		}
	}
	return false
}

func forcedRecursive(hc *container.HostConfig, target string) bool {
	if hc == nil {
		return false
	}
	for _, m := range hc.Mounts {
		if m.Target == target && m.BindOptions != nil {
			return m.BindOptions.ReadOnlyForceRecursive
		}
	}
	return false
}
