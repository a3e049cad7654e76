package convert

import (
	"fmt"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Devices is the engine's form of host devices. No permissions means all.
func Devices(ds []*runtimeapi.Device) ([]container.DeviceMapping, error) {
	var out []container.DeviceMapping
	for _, d := range ds {
		permissions := d.GetPermissions()
		if permissions == "" {
			permissions = "rwm"
		}
		target := d.GetContainerPath()
		if target == "" {
			target = d.GetHostPath()
		}
		if d.GetHostPath() == "" || strings.Trim(permissions, "rwm") != "" {
			return nil, fmt.Errorf("device %q needs a path, and permissions of r, w and m, not %q: %w", d.GetHostPath(), permissions, errdefs.ErrInvalidArgument)
		}
		out = append(out, container.DeviceMapping{
			PathOnHost: d.GetHostPath(), PathInContainer: target, CgroupPermissions: permissions,
		})
	}
	return out, nil
}

// CDIDevices is the engine's form of fully qualified CDI device names.
func CDIDevices(ds []*runtimeapi.CDIDevice) ([]container.DeviceRequest, error) {
	if len(ds) == 0 {
		return nil, nil
	}
	var names []string
	for _, d := range ds {
		kind, device, ok := strings.Cut(d.GetName(), "=")
		if !ok || device == "" || !strings.Contains(kind, "/") {
			return nil, fmt.Errorf("CDI device %q is not vendor/class=name: %w", d.GetName(), errdefs.ErrInvalidArgument)
		}
		names = append(names, d.GetName())
	}
	return []container.DeviceRequest{{Driver: "cdi", DeviceIDs: names}}, nil
}
