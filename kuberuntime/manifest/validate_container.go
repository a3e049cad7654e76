package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func (v *validator) containers(spec *field.Path) {
	if len(v.pod.Spec.Containers) == 0 {
		v.errs = append(v.errs, field.Required(spec.Child("containers"), "a pod needs a container"))
	}
	init, regular := len(v.pod.Spec.InitContainers), len(v.pod.Spec.Containers)
	names := map[string]bool{}
	hostPorts := map[string]bool{}
	for i, c := range Containers(v.pod) {
		at := spec.Child("initContainers").Index(i)
		switch {
		case i >= init+regular:
			at = spec.Child("ephemeralContainers").Index(i - init - regular)
		case i >= init:
			at = spec.Child("containers").Index(i - init)
		}
		if v.required(at.Child("name"), c.Name) {
			v.text(at.Child("name"), c.Name, validation.IsDNS1123Label)
			if names[c.Name] {
				v.errs = append(v.errs, field.Duplicate(at.Child("name"), c.Name))
			}
		}
		names[c.Name] = true
		v.container(c, at, hostPorts)
		v.restartPolicy(c, at, i < init, i >= init+regular)
		if i >= init+regular {
			v.ephemeral(&v.pod.Spec.EphemeralContainers[i-init-regular], at)
		}
	}
}

// ephemeral containers join a pod that runs: they have no say in how it was made.
func (v *validator) ephemeral(c *v1.EphemeralContainer, at *field.Path) {
	for name, set := range map[string]bool{"ports": len(c.Ports) > 0, "resources": len(c.Resources.Limits)+len(c.Resources.Requests) > 0} {
		if set {
			v.errs = append(v.errs, field.Forbidden(at.Child(name), "is not for an ephemeral container"))
		}
	}
	for i, m := range c.VolumeMounts {
		if m.SubPath != "" || m.SubPathExpr != "" {
			v.errs = append(v.errs, field.Forbidden(at.Child("volumeMounts").Index(i).Child("subPath"), "is not for an ephemeral container"))
		}
	}
	if target := c.TargetContainerName; target != "" && !slices.ContainsFunc(v.pod.Spec.Containers, func(c v1.Container) bool { return c.Name == target }) {
		v.errs = append(v.errs, field.NotFound(at.Child("targetContainerName"), target))
	}
}

func (v *validator) container(c *v1.Container, at *field.Path, hostPorts map[string]bool) {
	v.image(at.Child("image"), c.Image)
	v.pullPolicy(at.Child("imagePullPolicy"), c.ImagePullPolicy)
	oneOf(v, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	v.ports(c, at.Child("ports"), hostPorts)
	v.env(c, at)
	v.resources(c, at.Child("resources"))
	v.mounts(c, at.Child("volumeMounts"))
	if len(c.VolumeDevices) > 0 {
		v.errs = append(v.errs, field.Forbidden(at.Child("volumeDevices"), "needs a volume plugin"))
	}
	if len(c.Resources.Claims) > 0 {
		v.errs = append(v.errs, field.Forbidden(at.Child("resources", "claims"), "needs a resource driver"))
	}
	v.probe(c, at.Child("livenessProbe"), c.LivenessProbe)
	v.probe(c, at.Child("readinessProbe"), c.ReadinessProbe)
	v.probe(c, at.Child("startupProbe"), c.StartupProbe)
	v.successThreshold(at.Child("livenessProbe"), c.LivenessProbe)
	v.successThreshold(at.Child("startupProbe"), c.StartupProbe)
	if p := c.ReadinessProbe; p != nil && p.TerminationGracePeriodSeconds != nil {
		v.errs = append(v.errs, field.Forbidden(at.Child("readinessProbe", "terminationGracePeriodSeconds"), "a readiness probe ends no container"))
	}
	if c.Lifecycle != nil {
		v.handler(c, at.Child("lifecycle", "postStart"), c.Lifecycle.PostStart)
		v.handler(c, at.Child("lifecycle", "preStop"), c.Lifecycle.PreStop)
		if signal := c.Lifecycle.StopSignal; signal != nil {
			v.stopSignal(at.Child("lifecycle", "stopSignal"), *signal)
		}
	}
	if sc := c.SecurityContext; sc != nil {
		at := at.Child("securityContext")
		v.ids(at, sc.RunAsUser, sc.RunAsGroup)
		v.seccomp(at.Child("seccompProfile"), sc.SeccompProfile)
		v.appArmor(at.Child("appArmorProfile"), sc.AppArmorProfile)
		v.privileges(sc, at)
	}
}

func (v *validator) privileges(sc *v1.SecurityContext, at *field.Path) {
	if sc.AllowPrivilegeEscalation != nil && !*sc.AllowPrivilegeEscalation {
		if isTrue(sc.Privileged) {
			v.invalid(at.Child("allowPrivilegeEscalation"), false, "cannot be false for a privileged container")
		}
		if sc.Capabilities != nil && (slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") || slices.Contains(sc.Capabilities.Add, "SYS_ADMIN")) {
			v.invalid(at.Child("allowPrivilegeEscalation"), false, "cannot be false for a container with CAP_SYS_ADMIN")
		}
	}
	if sc.ProcMount != nil {
		oneOf(v, at.Child("procMount"), *sc.ProcMount, v1.DefaultProcMount, v1.UnmaskedProcMount)
	}
	if sc.WindowsOptions != nil {
		v.errs = append(v.errs, field.Forbidden(at.Child("windowsOptions"), "only linux pods run here"))
	}
}

// restartPolicy of a container makes an init container a sidecar, and nothing else here.
func (v *validator) restartPolicy(c *v1.Container, at *field.Path, init, ephemeral bool) {
	sidecar := false
	if c.RestartPolicy != nil {
		switch {
		case !init:
			v.errs = append(v.errs, field.Forbidden(at.Child("restartPolicy"), "is for init containers; the pod's restartPolicy holds for the others"))
		case *c.RestartPolicy != v1.ContainerRestartPolicyAlways:
			v.errs = append(v.errs, field.NotSupported(at.Child("restartPolicy"), *c.RestartPolicy, []v1.ContainerRestartPolicy{v1.ContainerRestartPolicyAlways}))
		default:
			sidecar = true
		}
	}
	if len(c.RestartPolicyRules) > 0 {
		v.errs = append(v.errs, field.Forbidden(at.Child("restartPolicyRules"), "is not supported"))
	}
	if (init && !sidecar) || ephemeral {
		for name, set := range map[string]bool{
			"livenessProbe": c.LivenessProbe != nil, "readinessProbe": c.ReadinessProbe != nil,
			"startupProbe": c.StartupProbe != nil, "lifecycle": c.Lifecycle != nil,
		} {
			if set {
				v.errs = append(v.errs, field.Forbidden(at.Child(name), "is not for a container that runs to its end"))
			}
		}
	}
}

func (v *validator) image(at *field.Path, image string) {
	if !v.required(at, image) {
		return
	}
	if strings.TrimSpace(image) != image {
		v.invalid(at, image, "must not begin or end with white space")
		return
	}
	if _, err := reference.ParseAnyReference(image); err != nil {
		v.invalid(at, image, "is not an image reference: %v", err)
	}
}

func (v *validator) pullPolicy(at *field.Path, policy v1.PullPolicy) {
	oneOf(v, at, policy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
}

func (v *validator) ports(c *v1.Container, list *field.Path, hostPorts map[string]bool) {
	names := map[string]bool{}
	for i, p := range c.Ports {
		at := list.Index(i)
		if p.Name != "" {
			v.text(at.Child("name"), p.Name, validation.IsValidPortName)
			if names[p.Name] {
				v.errs = append(v.errs, field.Duplicate(at.Child("name"), p.Name))
			}
			names[p.Name] = true
		}
		oneOf(v, at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
		for _, msg := range validation.IsValidPortNum(int(p.ContainerPort)) {
			v.invalid(at.Child("containerPort"), p.ContainerPort, "%s", msg)
		}
		if p.HostIP != "" {
			v.ip(at.Child("hostIP"), p.HostIP)
		}
		v.hostPort(p, at.Child("hostPort"), hostPorts)
	}
}

func (v *validator) hostPort(p v1.ContainerPort, at *field.Path, seen map[string]bool) {
	if p.HostPort == 0 {
		return
	}
	for _, msg := range validation.IsValidPortNum(int(p.HostPort)) {
		v.invalid(at, p.HostPort, "%s", msg)
	}
	if v.pod.Spec.HostNetwork && p.HostPort != p.ContainerPort {
		v.invalid(at, p.HostPort, "must match containerPort when hostNetwork is set")
	}
	key := fmt.Sprintf("%s %s:%d", p.Protocol, p.HostIP, p.HostPort)
	if seen[key] {
		v.errs = append(v.errs, field.Duplicate(at, p.HostPort))
	}
	seen[key] = true
}

func (v *validator) mounts(c *v1.Container, list *field.Path) {
	volumes := map[string]bool{}
	for _, volume := range v.pod.Spec.Volumes {
		volumes[volume.Name] = true
	}
	paths := map[string]bool{}
	for i, m := range c.VolumeMounts {
		at := list.Index(i)
		if v.required(at.Child("name"), m.Name) && !volumes[m.Name] {
			v.errs = append(v.errs, field.NotFound(at.Child("name"), m.Name))
		}
		if v.required(at.Child("mountPath"), m.MountPath) {
			if paths[m.MountPath] {
				v.errs = append(v.errs, field.Duplicate(at.Child("mountPath"), m.MountPath))
			}
			if strings.Contains(m.MountPath, ":") {
				v.invalid(at.Child("mountPath"), m.MountPath, "must not contain ':'")
			}
		}
		paths[m.MountPath] = true
		if m.SubPath != "" && m.SubPathExpr != "" {
			v.invalid(at.Child("subPathExpr"), m.SubPathExpr, "cannot be combined with subPath")
		}
		if m.SubPath != "" {
			v.localPath(at.Child("subPath"), m.SubPath)
		}
		if m.SubPathExpr != "" {
			v.localPath(at.Child("subPathExpr"), m.SubPathExpr)
		}
		v.recursiveReadOnly(m, at.Child("recursiveReadOnly"))
		if m.BindMountOptions != nil {
			v.errs = append(v.errs, field.Forbidden(at.Child("bindMountOptions"), "is not supported"))
		}
		if m.MountPropagation != nil {
			v.propagation(c, at.Child("mountPropagation"), *m.MountPropagation)
		}
	}
}

func (v *validator) recursiveReadOnly(m v1.VolumeMount, at *field.Path) {
	if m.RecursiveReadOnly == nil {
		return
	}
	oneOf(v, at, *m.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled, v1.RecursiveReadOnlyIfPossible, v1.RecursiveReadOnlyEnabled)
	if *m.RecursiveReadOnly == v1.RecursiveReadOnlyDisabled {
		return
	}
	if !m.ReadOnly {
		v.errs = append(v.errs, field.Forbidden(at, "is for a mount that is readOnly"))
	}
	if m.MountPropagation != nil && *m.MountPropagation != v1.MountPropagationNone {
		v.errs = append(v.errs, field.Forbidden(at, "cannot be combined with mountPropagation"))
	}
}

func (v *validator) propagation(c *v1.Container, at *field.Path, mode v1.MountPropagationMode) {
	oneOf(v, at, mode, v1.MountPropagationNone, v1.MountPropagationHostToContainer, v1.MountPropagationBidirectional)
	privileged := c.SecurityContext != nil && isTrue(c.SecurityContext.Privileged)
	if mode == v1.MountPropagationBidirectional && !privileged {
		v.errs = append(v.errs, field.Forbidden(at, "Bidirectional is for privileged containers"))
	}
}

func (v *validator) resources(c *v1.Container, at *field.Path) {
	for _, list := range []struct {
		name  string
		items v1.ResourceList
	}{{"limits", c.Resources.Limits}, {"requests", c.Resources.Requests}} {
		for name, quantity := range list.items {
			here := at.Child(list.name).Key(string(name))
			if quantity.Sign() < 0 {
				v.invalid(here, quantity.String(), "must not be negative")
			}
			if !isHostResource(name) {
				v.errs = append(v.errs, field.Forbidden(here, "needs a device plugin"))
			}
		}
	}
	for name, request := range c.Resources.Requests {
		if limit := c.Resources.Limits[name]; strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix) && request.Cmp(limit) != 0 {
			v.invalid(at.Child("requests").Key(string(name)), request.String(), "must be the limit: huge pages cannot be overcommitted")
		}
	}
	for name, limit := range c.Resources.Limits {
		if request, ok := c.Resources.Requests[name]; ok && request.Cmp(limit) > 0 {
			v.invalid(at.Child("requests").Key(string(name)), request.String(), "must not be more than the limit of %s", limit.String())
		}
	}
}

func isHostResource(name v1.ResourceName) bool {
	return name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage ||
		strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}
