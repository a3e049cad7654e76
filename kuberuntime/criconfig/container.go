package criconfig

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/manifest"
	"github.com/crishim/crishim/kuberuntime/pod"
)

// ContainerInput holds the inputs of a container's configuration.
type ContainerInput struct {
	Pod         *v1.Pod
	Container   *v1.Container
	Env         []*runtimeapi.KeyValue
	Restarts    int
	PodRestarts int    // how often all containers of the pod were restarted together
	Attempt     int    // attempt of the container, also the name of its log
	ImageRef    string // the runtime's reference of the image
	ImageUser   ImageUser
	Mounts      []*runtimeapi.Mount
	TargetID    string // container whose PID namespace an ephemeral container joins
}

// Container returns the configuration of an attempt of a container, like the kubelet's generateContainerConfig.
func (g *Generator) Container(in ContainerInput) (*runtimeapi.ContainerConfig, error) {
	p, c := in.Pod, in.Container
	if err := verifyNonRoot(p, c, in.ImageUser); err != nil {
		return nil, err
	}
	annotations, err := containerAnnotations(p, c, in.Restarts)
	if err != nil {
		return nil, err
	}
	if in.PodRestarts > 0 {
		annotations[pod.PodRestartsAnnotation] = strconv.Itoa(in.PodRestarts)
	}
	own := labels(p)
	own[kube.LabelContainerName] = c.Name
	expandAll := func(args []string) (out []string) {
		for _, a := range args {
			out = append(out, expandKnown(a, in.Env))
		}
		return out
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: c.Name, Attempt: uint32(in.Attempt)},
		Image:       &runtimeapi.ImageSpec{Image: in.ImageRef, UserSpecifiedImage: c.Image},
		Command:     expandAll(c.Command),
		Args:        expandAll(c.Args),
		WorkingDir:  c.WorkingDir,
		Envs:        in.Env,
		Mounts:      in.Mounts,
		Labels:      own,
		Annotations: annotations,
		LogPath:     LogPath(c.Name, uint32(in.Attempt)),
		Stdin:       c.Stdin,
		StdinOnce:   c.StdinOnce,
		Tty:         c.TTY,
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       resources(p, c, g.Host),
			SecurityContext: g.containerSecurity(p, c, in.ImageUser, in.TargetID),
		},
	}
	if c.Lifecycle != nil && c.Lifecycle.StopSignal != nil {
		config.StopSignal = runtimeapi.Signal(runtimeapi.Signal_value["SIGNAL_"+string(*c.Lifecycle.StopSignal)])
	}
	return config, nil
}

func LogPath(name string, attempt uint32) string { return fmt.Sprintf("%s/%d.log", name, attempt) }

// containerAnnotations returns a container's hash, its restart count, and the parts of the manifest that are needed to
// kill the container and to read its termination message without the manifest, like the kubelet's
// newContainerAnnotations.
func containerAnnotations(p *v1.Pod, c *v1.Container, restarts int) (map[string]string, error) {
	out := map[string]string{
		pod.HashAnnotation:          pod.FormatHash(pod.ContainerHash(c)),
		pod.RestartCountAnnotation:  strconv.Itoa(restarts),
		pod.MessagePathAnnotation:   c.TerminationMessagePath,
		pod.MessagePolicyAnnotation: string(c.TerminationMessagePolicy),
	}
	if p.DeletionGracePeriodSeconds != nil {
		out[pod.DeletionGraceAnnotation] = strconv.FormatInt(*p.DeletionGracePeriodSeconds, 10)
	}
	if p.Spec.TerminationGracePeriodSeconds != nil {
		out[pod.TerminationGraceAnnotation] = strconv.FormatInt(*p.Spec.TerminationGracePeriodSeconds, 10)
	}
	if c.Lifecycle != nil && c.Lifecycle.PreStop != nil {
		text, err := json.Marshal(c.Lifecycle.PreStop)
		if err != nil {
			return nil, fmt.Errorf("encode preStop of %s: %w", c.Name, err)
		}
		out[pod.PreStopAnnotation] = string(text)
	}
	if len(c.Ports) > 0 {
		text, err := json.Marshal(c.Ports)
		if err != nil {
			return nil, fmt.Errorf("encode ports of %s: %w", c.Name, err)
		}
		out[pod.PortsAnnotation] = string(text)
	}
	return out, nil
}

// Limits of the kernel and the kubelet for CPU quotas and shares.
const (
	quotaPeriod = 100_000 // µs
	minQuota    = 1_000   // µs
	minShares   = 2
	maxShares   = 262144
)

func QoS(p *v1.Pod) v1.PodQOSClass {
	asked, guaranteed := false, true
	all := []v1.ResourceRequirements{}
	if p.Spec.Resources != nil {
		all = append(all, *p.Spec.Resources)
	} else {
		for _, c := range manifest.Containers(p)[:len(p.Spec.InitContainers)+len(p.Spec.Containers)] {
			all = append(all, c.Resources)
		}
	}
	for _, one := range all {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request, limit := one.Requests[name], one.Limits[name]
			if !request.IsZero() || !limit.IsZero() {
				asked = true
			}
			if limit.IsZero() || request.Cmp(limit) != 0 {
				guaranteed = false
			}
		}
	}
	switch {
	case !asked:
		return v1.PodQOSBestEffort
	case guaranteed:
		return v1.PodQOSGuaranteed
	}
	return v1.PodQOSBurstable
}

// oomScore returns the oom_score_adj of a container, like the kubelet's GetContainerOOMScoreAdjust. Containers that
// request little memory are killed first.
func oomScore(p *v1.Pod, c *v1.Container, capacity int64) int64 {
	const guaranteed, bestEffort = -997, 1000
	if p.Spec.PriorityClassName == "system-node-critical" {
		return guaranteed
	}
	switch QoS(p) {
	case v1.PodQOSGuaranteed:
		return guaranteed
	case v1.PodQOSBestEffort:
		return bestEffort
	}
	if capacity <= 0 {
		return bestEffort - 1
	}
	request := c.Resources.Requests.Memory().Value()
	// As in the kubelet, a sidecar counts with at least the smallest request of the regular containers, so that its score
	// is not above the highest score of a regular container.
	if pod.IsSidecar(c) {
		least := int64(math.MaxInt64)
		for i := range p.Spec.Containers {
			least = min(least, p.Spec.Containers[i].Resources.Requests.Memory().Value())
		}
		request = max(request, least)
	}
	if p.Spec.Resources != nil { // the rest of the pod's request is divided among its containers
		left, all := p.Spec.Resources.Requests.Memory().Value(), manifest.Containers(p)[:len(p.Spec.InitContainers)+len(p.Spec.Containers)]
		for _, c := range all {
			left -= c.Resources.Requests.Memory().Value()
		}
		request += max(left, 0) / int64(len(all))
	}
	score := 1000 - 1000*request/capacity
	return min(max(score, 1000+guaranteed), bestEffort-1)
}

// resources returns the CRI resources of a container, like the kubelet's generateLinuxContainerResources.
func resources(p *v1.Pod, c *v1.Container, host Host) *runtimeapi.LinuxContainerResources {
	cpu, memory := limitOf(p, c, v1.ResourceCPU), limitOf(p, c, v1.ResourceMemory)
	milli := cpu.MilliValue()
	if request, set := c.Resources.Requests[v1.ResourceCPU]; set {
		milli = request.MilliValue()
	}
	r := &runtimeapi.LinuxContainerResources{CpuShares: shares(milli), OomScoreAdj: oomScore(p, c, host.Memory)}
	if !cpu.IsZero() {
		r.CpuPeriod = quotaPeriod
		r.CpuQuota = cpuQuota(cpu)
	}
	r.MemoryLimitInBytes = memory.Value()
	limitMemory(r, p, c, host)
	r.HugepageLimits = hugepageLimits(c.Resources.Limits, host.HugePages)
	return r
}

// hugepageLimits returns a limit for every page size of the host. A size without a limit in the manifest gets 0.
func hugepageLimits(limits v1.ResourceList, sizes []int64) []*runtimeapi.HugepageLimit {
	asked := map[int64]int64{}
	for name, limit := range limits {
		text, ok := strings.CutPrefix(string(name), v1.ResourceHugePagesPrefix)
		if size, err := resource.ParseQuantity(text); ok && err == nil {
			asked[size.Value()] = limit.Value()
		}
	}
	sizes = slices.Clone(sizes)
	for _, size := range slices.Sorted(maps.Keys(asked)) {
		if !slices.Contains(sizes, size) {
			sizes = append(sizes, size) // the runtime then refuses a page size that the host lacks
		}
	}
	var out []*runtimeapi.HugepageLimit
	for _, size := range sizes {
		out = append(out, &runtimeapi.HugepageLimit{PageSize: pageSize(size), Limit: uint64(asked[size])})
	}
	return out
}

// pageSize formats a page size as the kernel does: 64KB, 2MB, 1GB.
func pageSize(size int64) string {
	units := []string{"B", "KB", "MB", "GB"}
	for size >= 1024 && len(units) > 1 {
		size, units = size>>10, units[1:]
	}
	return strconv.FormatInt(size, 10) + units[0]
}
