package convert

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	unifiedSwap = "memory.swap.max"
	unifiedPids = "pids.max"
)

// Resources disables swap unless requested, as is usual in Kubernetes. Without a memory limit the engine cannot limit
// swap.
func Resources(r *runtimeapi.LinuxContainerResources) (container.Resources, error) {
	out := container.Resources{
		Memory:     r.GetMemoryLimitInBytes(),
		MemorySwap: r.GetMemoryLimitInBytes(),
		CPUShares:  r.GetCpuShares(),
		CPUPeriod:  r.GetCpuPeriod(),
		CPUQuota:   r.GetCpuQuota(),
		CpusetCpus: r.GetCpusetCpus(),
		CpusetMems: r.GetCpusetMems(),
	}
	if swap := r.GetMemorySwapLimitInBytes(); swap != 0 {
		out.MemorySwap = swap
	}
	if text, ok := r.GetUnified()[unifiedSwap]; ok {
		swap, err := limit(unifiedSwap, text)
		if err != nil {
			return out, err
		}
		switch {
		case swap < 0:
			out.MemorySwap = -1
		case engineHas(unifiedSwap, r):
			out.MemorySwap = out.Memory + swap
		}
	}
	if text, ok := r.GetUnified()[unifiedPids]; ok {
		pids, err := limit(unifiedPids, text)
		if err != nil {
			return out, err
		}
		out.PidsLimit = &pids
	}
	if out.MemorySwap > 0 && out.MemorySwap < out.Memory {
		return out, fmt.Errorf("memory_swap_limit_in_bytes %d is below memory_limit_in_bytes %d: %w",
			out.MemorySwap, out.Memory, errdefs.ErrInvalidArgument)
	}
	return out, nil
}

// WithMemory completes an update of only the memory limit or only the swap limit, because the engine updates both
// together. It keeps the current memory limit or the current amount of swap.
func WithMemory(change *runtimeapi.LinuxContainerResources, now *container.HostConfig) *runtimeapi.LinuxContainerResources {
	_, unified := change.GetUnified()[unifiedSwap]
	swap := unified || change.GetMemorySwapLimitInBytes() != 0
	memory := change.GetMemoryLimitInBytes() != 0
	if memory == swap || now == nil || now.Memory <= 0 {
		return change
	}
	change = proto.CloneOf(change)
	switch {
	case swap:
		change.MemoryLimitInBytes = now.Memory
	case now.MemorySwap < 0:
		change.MemorySwapLimitInBytes = now.MemorySwap
	case now.MemorySwap > now.Memory && change.GetMemoryLimitInBytes() > 0:
		change.MemorySwapLimitInBytes = change.GetMemoryLimitInBytes() + now.MemorySwap - now.Memory
	}
	return change
}

// engineHas reports whether the engine has a field for a cgroup v2 file. The engine's swap limit is the sum of memory and
// swap, so a swap limit other than max needs a memory limit.
func engineHas(file string, r *runtimeapi.LinuxContainerResources) bool {
	return file == unifiedPids || file == unifiedSwap && (r.GetMemoryLimitInBytes() > 0 || r.GetUnified()[file] == "max")
}

// CgroupFiles returns the limits that the engine has no fields for, by file name in the container's cgroup.
func CgroupFiles(r *runtimeapi.LinuxContainerResources, v2 bool) (map[string]string, error) {
	files := map[string]string{}
	for name, value := range r.GetUnified() {
		if engineHas(name, r) {
			continue
		}
		if !v2 {
			return nil, fmt.Errorf("unified resource %q: the engine's host has cgroup v1: %w", name, errdefs.ErrInvalidArgument)
		}
		if !cgroupFile.MatchString(name) {
			return nil, fmt.Errorf("unified resource %q is not the name of a cgroup file: %w", name, errdefs.ErrInvalidArgument)
		}
		files[name] = value
	}
	for _, h := range r.GetHugepageLimits() {
		name, file := "hugetlb."+h.GetPageSize(), ".limit_in_bytes"
		if !cgroupFile.MatchString(name) {
			return nil, fmt.Errorf("huge page size %q: %w", h.GetPageSize(), errdefs.ErrInvalidArgument)
		}
		if v2 {
			file = ".max"
		}
		files[name+file] = strconv.FormatUint(h.GetLimit(), 10)
	}
	return files, nil
}

// cgroupFile matches file names without path separators or "..".
var cgroupFile = regexp.MustCompile(`^[a-zA-Z0-9_][a-zA-Z0-9_.]*\.[a-zA-Z0-9_.]*[a-zA-Z0-9_]$`)

func limit(name, text string) (int64, error) {
	if text == "max" {
		return -1, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("unified resource %s=%q: %w", name, text, errdefs.ErrInvalidArgument)
	}
	return n, nil
}

func CRIResources(hc *container.HostConfig, hugepages []*runtimeapi.HugepageLimit, unified map[string]string) *runtimeapi.LinuxContainerResources {
	if hc == nil {
		return nil
	}
	return &runtimeapi.LinuxContainerResources{
		MemoryLimitInBytes:     hc.Memory,
		MemorySwapLimitInBytes: hc.MemorySwap,
		CpuShares:              hc.CPUShares,
		CpuPeriod:              hc.CPUPeriod,
		CpuQuota:               hc.CPUQuota,
		CpusetCpus:             hc.CpusetCpus,
		CpusetMems:             hc.CpusetMems,
		OomScoreAdj:            int64(hc.OomScoreAdj),
		HugepageLimits:         hugepages,
		Unified:                unified,
	}
}

// CgroupParent converts a parent in cgroupfs form. For the systemd driver it returns the name of the slice. ".." is
// rejected, because it would leave the kubelet's tree.
func CgroupParent(parent, driver string) (string, error) {
	if slices.Contains(strings.Split(parent, "/"), "..") || strings.ContainsRune(parent, 0) {
		return "", fmt.Errorf("cgroup parent %q leads out of its tree: %w", parent, errdefs.ErrInvalidArgument)
	}
	if parent == "" || driver != "systemd" {
		return parent, nil
	}
	slice := path.Base(parent)
	if !strings.HasSuffix(slice, ".slice") {
		return "", fmt.Errorf("cgroup parent %q: the engine uses the systemd cgroup driver, so it must end in .slice: %w",
			parent, errdefs.ErrInvalidArgument)
	}
	return slice, nil
}

func Devices(ds []*runtimeapi.Device) ([]container.DeviceMapping, error) {
	var out []container.DeviceMapping
	for _, d := range ds {
		permissions := cmp.Or(d.GetPermissions(), "rwm")
		if d.GetHostPath() == "" || strings.Trim(permissions, "rwm") != "" {
			return nil, fmt.Errorf("device %q needs a path, and permissions of r, w and m, not %q: %w", d.GetHostPath(), permissions, errdefs.ErrInvalidArgument)
		}
		out = append(out, container.DeviceMapping{
			PathOnHost: d.GetHostPath(), PathInContainer: cmp.Or(d.GetContainerPath(), d.GetHostPath()), CgroupPermissions: permissions,
		})
	}
	return out, nil
}

// annotationCDI is the prefix of annotations in which kubelets send the CDI devices of device plugins, separated by commas.
// Kubelets before 1.28 do not send CDI devices in any other way.
const annotationCDI = "cdi.k8s.io/"

func CDIDevices(ds []*runtimeapi.CDIDevice, annotations map[string]string) ([]container.DeviceRequest, error) {
	var names []string
	for _, d := range ds {
		names = append(names, d.GetName())
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if strings.HasPrefix(key, annotationCDI) {
			names = append(names, strings.Split(annotations[key], ",")...)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	request := container.DeviceRequest{Driver: "cdi"}
	for _, name := range names {
		kind, device, ok := strings.Cut(name, "=")
		if !ok || device == "" || !strings.Contains(kind, "/") {
			return nil, fmt.Errorf("CDI device %q is not vendor/class=name: %w", name, errdefs.ErrInvalidArgument)
		}
		if !slices.Contains(request.DeviceIDs, name) {
			request.DeviceIDs = append(request.DeviceIDs, name)
		}
	}
	return []container.DeviceRequest{request}, nil
}
