package manifest

import (
	"cmp"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Default sets the defaults of an API server that matter on a single host.
func Default(pod *v1.Pod) {
	if pod.Namespace == "" {
		pod.Namespace = "default"
	}
	spec := &pod.Spec
	setDefault(&spec.RestartPolicy, v1.RestartPolicyAlways)
	setDefault(&spec.DNSPolicy, v1.DNSClusterFirst)
	setDefault(&spec.TerminationGracePeriodSeconds, new(int64(v1.DefaultTerminationGracePeriodSeconds)))
	setDefault(&spec.SecurityContext, &v1.PodSecurityContext{})
	for i := range spec.Volumes {
		v, mode := &spec.Volumes[i], new(int32(0o644))
		if v.VolumeSource == (v1.VolumeSource{}) {
			v.EmptyDir = &v1.EmptyDirVolumeSource{}
		}
		switch {
		case v.HostPath != nil:
			setDefault(&v.HostPath.Type, new(v1.HostPathUnset))
		case v.Secret != nil:
			setDefault(&v.Secret.DefaultMode, mode)
		case v.ConfigMap != nil:
			setDefault(&v.ConfigMap.DefaultMode, mode)
		case v.DownwardAPI != nil:
			setDefault(&v.DownwardAPI.DefaultMode, mode)
		case v.Projected != nil:
			setDefault(&v.Projected.DefaultMode, mode)
		case v.Image != nil:
			setDefault(&v.Image.PullPolicy, defaultPullPolicy(v.Image.Reference))
		}
	}
	for _, c := range Containers(pod) {
		defaultContainer(c, spec)
		defaultAppArmor(c, pod.Annotations)
	}
	if r := spec.Resources; r != nil && len(r.Limits)+len(r.Requests)+len(r.Claims) == 0 {
		spec.Resources = nil
	} else if r != nil {
		for _, name := range []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory} {
			request := requested(spec, name)
			if request.IsZero() {
				request = r.Limits[name]
			}
			if !request.IsZero() {
				defaultRequest(r, name, request)
			}
		}
	}
}

func requested(spec *v1.PodSpec, name v1.ResourceName) resource.Quantity {
	return Together(spec, func(c *v1.Container) resource.Quantity { return c.Resources.Requests[name] })
}

// Together returns the largest sum of a resource over the containers of a pod that run at the same time. Init containers
// run one after the other, before the regular containers. Sidecars run next to all containers that follow them.
func Together(spec *v1.PodSpec, of func(*v1.Container) resource.Quantity) (sum resource.Quantity) {
	var most resource.Quantity
	for i := range spec.InitContainers {
		c, phase := &spec.InitContainers[i], sum.DeepCopy()
		if phase.Add(of(c)); pod.IsSidecar(c) {
			sum = phase
		} else if phase.Cmp(most) > 0 {
			most = phase
		}
	}
	for i := range spec.Containers {
		sum.Add(of(&spec.Containers[i]))
	}
	if most.Cmp(sum) > 0 {
		return most
	}
	return sum
}

func defaultRequest(r *v1.ResourceRequirements, name v1.ResourceName, value resource.Quantity) {
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	if _, asked := r.Requests[name]; !asked {
		r.Requests[name] = value.DeepCopy()
	}
}

// Containers returns pointers to all containers of a pod: init, regular, ephemeral.
func Containers(pod *v1.Pod) []*v1.Container {
	var out []*v1.Container
	for i := range pod.Spec.InitContainers {
		out = append(out, &pod.Spec.InitContainers[i])
	}
	for i := range pod.Spec.Containers {
		out = append(out, &pod.Spec.Containers[i])
	}
	for i := range pod.Spec.EphemeralContainers {
		// The API keeps the fields of Container and EphemeralContainerCommon the same and in the same order, so that Go can
		// convert the type.
		out = append(out, (*v1.Container)(&pod.Spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
	return out
}

func Container(pod *v1.Pod, name string) *v1.Container {
	for _, c := range Containers(pod) {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func setDefault[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

func defaultContainer(c *v1.Container, spec *v1.PodSpec) {
	setDefault(&c.TerminationMessagePath, v1.TerminationMessagePathDefault)
	setDefault(&c.TerminationMessagePolicy, v1.TerminationMessageReadFile)
	setDefault(&c.ImagePullPolicy, defaultPullPolicy(c.Image))
	for i := range c.Ports {
		setDefault(&c.Ports[i].Protocol, v1.ProtocolTCP)
		if spec.HostNetwork {
			setDefault(&c.Ports[i].HostPort, c.Ports[i].ContainerPort)
		}
	}
	for i := range c.Env {
		if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
			setDefault(&from.FieldRef.APIVersion, "v1")
		}
	}
	// A missing request defaults to the limit.
	for name, limit := range c.Resources.Limits {
		defaultRequest(&c.Resources, name, limit)
	}
	for _, p := range []*v1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		setDefault(&p.TimeoutSeconds, 1)
		setDefault(&p.PeriodSeconds, 10)
		setDefault(&p.SuccessThreshold, 1)
		setDefault(&p.FailureThreshold, 3)
		defaultHTTPGet(p.HTTPGet)
		if p.GRPC != nil {
			setDefault(&p.GRPC.Service, new(""))
		}
	}
	if c.Lifecycle != nil {
		for _, h := range []*v1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
			if h != nil {
				defaultHTTPGet(h.HTTPGet)
			}
		}
	}
}

// defaultPullPolicy returns Always for the tag latest, explicit or implied.
func defaultPullPolicy(image string) v1.PullPolicy {
	named, err := reference.ParseNormalizedNamed(image)
	if err != nil {
		return v1.PullIfNotPresent
	}
	if tagged, ok := reference.TagNameOnly(named).(reference.Tagged); ok && tagged.Tag() == "latest" {
		return v1.PullAlways
	}
	return v1.PullIfNotPresent
}

func defaultHTTPGet(h *v1.HTTPGetAction) {
	if h == nil {
		return
	}
	setDefault(&h.Path, "/")
	setDefault(&h.Scheme, v1.URISchemeHTTP)
	h.Scheme = v1.URIScheme(strings.ToUpper(string(h.Scheme)))
}
