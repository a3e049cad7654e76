package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/internal/kube"
)

func (v *validator) containers(spec *field.Path) {
	if len(v.pod.Spec.Containers) == 0 {
		v.errs = append(v.errs, field.Required(spec.Child("containers"), "a pod needs a container"))
	}
	init, regular := len(v.pod.Spec.InitContainers), len(v.pod.Spec.Containers)
	names := map[string]bool{}
	hostPorts := map[string]bool{}
	for i, c := range Containers(v.pod) {
		at := ContainerPath(v.pod, i)
		if v.required(at.Child("name"), c.Name) {
			v.text(at.Child("name"), c.Name, validation.IsDNS1123Label)
			v.unique(at.Child("name"), names, c.Name)
		}
		v.container(c, at, hostPorts)
		v.restartPolicy(c, at, i < init, i >= init+regular)
		if i < init+regular {
			continue
		}
		// An ephemeral container joins a running pod and cannot change the pod's configuration.
		const why = "is not for an ephemeral container"
		v.refuse(len(c.Ports) > 0, at.Child("ports"), why)
		v.refuse(len(c.Resources.Limits)+len(c.Resources.Requests) > 0, at.Child("resources"), why)
		for j, m := range c.VolumeMounts {
			v.refuse(m.SubPath+m.SubPathExpr != "", at.Child("volumeMounts").Index(j).Child("subPath"), why)
		}
		target := v.pod.Spec.EphemeralContainers[i-init-regular].TargetContainerName
		if target != "" && !slices.ContainsFunc(v.pod.Spec.Containers, func(c v1.Container) bool { return c.Name == target }) {
			v.errs = append(v.errs, field.NotFound(at.Child("targetContainerName"), target))
		}
	}
}

// ContainerPath returns the field path of a container. i is its index in the result of Containers.
func ContainerPath(pod *v1.Pod, i int) *field.Path {
	spec, init, regular := field.NewPath("spec"), len(pod.Spec.InitContainers), len(pod.Spec.Containers)
	switch {
	case i < init:
		return spec.Child("initContainers").Index(i)
	case i < init+regular:
		return spec.Child("containers").Index(i - init)
	}
	return spec.Child("ephemeralContainers").Index(i - init - regular)
}

func (v *validator) container(c *v1.Container, at *field.Path, hostPorts map[string]bool) {
	v.image(at.Child("image"), c.Image)
	oneOf(v, at.Child("imagePullPolicy"), c.ImagePullPolicy, v1.PullAlways, v1.PullIfNotPresent, v1.PullNever)
	oneOf(v, at.Child("terminationMessagePolicy"), c.TerminationMessagePolicy, v1.TerminationMessageReadFile, v1.TerminationMessageFallbackToLogsOnError)
	v.ports(c, at.Child("ports"), hostPorts)
	v.env(c, at)
	v.resources(&c.Resources, at.Child("resources"))
	v.mounts(c, at.Child("volumeMounts"))
	v.refuse(len(c.VolumeDevices) > 0, at.Child("volumeDevices"), "needs a volume plugin")
	v.refuse(len(c.Resources.Claims) > 0, at.Child("resources", "claims"), "needs a resource driver")
	v.probe(c, at.Child("livenessProbe"), c.LivenessProbe)
	v.probe(c, at.Child("readinessProbe"), c.ReadinessProbe)
	v.probe(c, at.Child("startupProbe"), c.StartupProbe)
	if p := c.LivenessProbe; p != nil && p.SuccessThreshold != 1 {
		v.invalid(at.Child("livenessProbe", "successThreshold"), p.SuccessThreshold, "must be 1")
	}
	if p := c.StartupProbe; p != nil && p.SuccessThreshold != 1 {
		v.invalid(at.Child("startupProbe", "successThreshold"), p.SuccessThreshold, "must be 1")
	}
	v.refuse(c.ReadinessProbe != nil && c.ReadinessProbe.TerminationGracePeriodSeconds != nil,
		at.Child("readinessProbe", "terminationGracePeriodSeconds"), "a readiness probe ends no container")
	if c.Lifecycle != nil {
		v.handler(c, at.Child("lifecycle", "postStart"), c.Lifecycle.PostStart)
		v.handler(c, at.Child("lifecycle", "preStop"), c.Lifecycle.PreStop)
		if signal := c.Lifecycle.StopSignal; signal != nil {
			if _, known := runtimeapi.Signal_value["SIGNAL_"+string(*signal)]; !known || *signal == "RUNTIME_DEFAULT" {
				v.invalid(at.Child("lifecycle", "stopSignal"), *signal, "must be a signal that the CRI knows, such as SIGTERM")
			}
		}
	}
	if c.SecurityContext != nil {
		v.security(c.SecurityContext, at.Child("securityContext"))
	}
}

func (v *validator) security(sc *v1.SecurityContext, at *field.Path) {
	v.ids(at, sc.RunAsUser, sc.RunAsGroup)
	v.profiles(at, sc.SeccompProfile, sc.AppArmorProfile)
	if !ptr.Deref(sc.AllowPrivilegeEscalation, true) {
		if ptr.Deref(sc.Privileged, false) {
			v.invalid(at.Child("allowPrivilegeEscalation"), false, "cannot be false for a privileged container")
		}
		if sc.Capabilities != nil && (slices.Contains(sc.Capabilities.Add, "CAP_SYS_ADMIN") || slices.Contains(sc.Capabilities.Add, "SYS_ADMIN")) {
			v.invalid(at.Child("allowPrivilegeEscalation"), false, "cannot be false for a container with CAP_SYS_ADMIN")
		}
	}
	oneOf(v, at.Child("procMount"), ptr.Deref(sc.ProcMount, v1.DefaultProcMount), v1.DefaultProcMount, v1.UnmaskedProcMount)
	v.refuse(sc.WindowsOptions != nil, at.Child("windowsOptions"), "only linux pods run here")
}

// restartPolicy checks a container's restart policy and rules. An init container with Always is a sidecar. Other init
// containers and ephemeral containers run to their end, so restartPolicy refuses their probes and lifecycle.
func (v *validator) restartPolicy(c *v1.Container, at *field.Path, init, ephemeral bool) {
	sidecar := false
	if c.RestartPolicy != nil {
		v.refuse(ephemeral, at.Child("restartPolicy"), "is not for an ephemeral container")
		oneOf(v, at.Child("restartPolicy"), *c.RestartPolicy, v1.ContainerRestartPolicyAlways, v1.ContainerRestartPolicyOnFailure, v1.ContainerRestartPolicyNever)
		sidecar = *c.RestartPolicy == v1.ContainerRestartPolicyAlways
	} else if len(c.RestartPolicyRules) > 0 {
		v.errs = append(v.errs, field.Required(at.Child("restartPolicy"), "the container has restartPolicyRules"))
	}
	const maxRules, maxCodes = 20, 255
	if n := len(c.RestartPolicyRules); n > maxRules {
		v.errs = append(v.errs, field.TooMany(at.Child("restartPolicyRules"), n, maxRules))
	}
	for i, rule := range c.RestartPolicyRules {
		at := at.Child("restartPolicyRules").Index(i)
		oneOf(v, at.Child("action"), rule.Action, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers)
		if rule.ExitCodes == nil {
			v.errs = append(v.errs, field.Required(at.Child("exitCodes"), ""))
			continue
		}
		at = at.Child("exitCodes")
		oneOf(v, at.Child("operator"), rule.ExitCodes.Operator, v1.ContainerRestartRuleOnExitCodesOpIn, v1.ContainerRestartRuleOnExitCodesOpNotIn)
		if n := len(rule.ExitCodes.Values); n > maxCodes {
			v.errs = append(v.errs, field.TooMany(at.Child("values"), n, maxCodes))
		}
	}
	if (init && !sidecar) || ephemeral {
		const why = "is not for a container that runs to its end"
		v.refuse(c.LivenessProbe != nil, at.Child("livenessProbe"), why)
		v.refuse(c.ReadinessProbe != nil, at.Child("readinessProbe"), why)
		v.refuse(c.StartupProbe != nil, at.Child("startupProbe"), why)
		v.refuse(c.Lifecycle != nil, at.Child("lifecycle"), why)
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
		v.invalid(at, image, "must be an image reference: %v", err)
	}
	v.refuse(strings.HasPrefix(image, kube.OwnImages), at, "names under "+kube.OwnImages+" are crishim's own")
}

func (v *validator) ports(c *v1.Container, list *field.Path, hostPorts map[string]bool) {
	names := map[string]bool{}
	for i, p := range c.Ports {
		at := list.Index(i)
		if p.Name != "" {
			v.text(at.Child("name"), p.Name, validation.IsValidPortName)
			v.unique(at.Child("name"), names, p.Name)
		}
		oneOf(v, at.Child("protocol"), p.Protocol, v1.ProtocolTCP, v1.ProtocolUDP, v1.ProtocolSCTP)
		for _, msg := range validation.IsValidPortNum(int(p.ContainerPort)) {
			v.invalid(at.Child("containerPort"), p.ContainerPort, "%s", msg)
		}
		if p.HostIP != "" {
			v.ip(at.Child("hostIP"), p.HostIP)
		}
		if p.HostPort == 0 {
			continue
		}
		at = at.Child("hostPort")
		for _, msg := range validation.IsValidPortNum(int(p.HostPort)) {
			v.invalid(at, p.HostPort, "%s", msg)
		}
		if v.pod.Spec.HostNetwork && p.HostPort != p.ContainerPort {
			v.invalid(at, p.HostPort, "must match containerPort when hostNetwork is set")
		}
		key := fmt.Sprintf("%s %s:%d", p.Protocol, p.HostIP, p.HostPort)
		if hostPorts[key] {
			v.errs = append(v.errs, field.Duplicate(at, p.HostPort))
		}
		hostPorts[key] = true
	}
}

// podResources checks the resources of a pod, which its containers share.
func (v *validator) podResources(at *field.Path) {
	r := v.pod.Spec.Resources
	if r == nil {
		return
	}
	v.resources(r, at)
	v.refuse(len(r.Claims) > 0, at.Child("claims"), "needs a resource driver")
	all := v1.ResourceList{}
	maps.Copy(all, r.Limits)
	maps.Copy(all, r.Requests)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v.refuse(name != v1.ResourceCPU && name != v1.ResourceMemory, at.Key(string(name)), "is for containers")
		request, asked := r.Requests[name]
		limit := r.Limits[name]
		if sum := requested(&v.pod.Spec, name); asked && request.Cmp(sum) < 0 {
			v.invalid(at.Child("requests").Key(string(name)), request.String(), "must not be less than the %s that the containers request", sum.String())
		}
		for i, c := range Containers(v.pod) {
			if own := c.Resources.Limits[name]; !limit.IsZero() && own.Cmp(limit) > 0 {
				v.invalid(ContainerPath(v.pod, i).Child("resources", "limits").Key(string(name)), own.String(), "must not be more than the pod's limit of %s", limit.String())
			}
		}
	}
}

func (v *validator) resources(r *v1.ResourceRequirements, at *field.Path) {
	for _, list := range []struct {
		name  string
		items v1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.items)) {
			quantity := list.items[name]
			here := at.Child(list.name).Key(string(name))
			if quantity.Sign() < 0 {
				v.invalid(here, quantity.String(), "must not be negative")
			}
			host := name == v1.ResourceCPU || name == v1.ResourceMemory || name == v1.ResourceEphemeralStorage || isHugePages(name)
			v.refuse(!host, here, "needs a device plugin")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		if isHugePages(name) && request.Cmp(limit) != 0 {
			v.invalid(at.Child("requests").Key(string(name)), request.String(), "must be the limit: huge pages cannot be overcommitted")
		}
		if limited && request.Cmp(limit) > 0 {
			v.invalid(at.Child("requests").Key(string(name)), request.String(), "must not be more than the limit of %s", limit.String())
		}
	}
}

func isHugePages(name v1.ResourceName) bool {
	return strings.HasPrefix(string(name), v1.ResourceHugePagesPrefix)
}

func (v *validator) probe(c *v1.Container, at *field.Path, p *v1.Probe) {
	if p == nil {
		return
	}
	if p.Exec != nil {
		v.command(at.Child("exec", "command"), p.Exec.Command)
	}
	if p.HTTPGet != nil {
		v.httpGet(c, at.Child("httpGet"), p.HTTPGet)
	}
	if p.TCPSocket != nil {
		v.port(c, at.Child("tcpSocket", "port"), p.TCPSocket.Port.String())
	}
	if p.GRPC != nil {
		for _, msg := range validation.IsValidPortNum(int(p.GRPC.Port)) {
			v.invalid(at.Child("grpc", "port"), p.GRPC.Port, "%s", msg)
		}
		v.refuse(p.GRPC.Mode != nil, at.Child("grpc", "mode"), "is not supported")
	}
	if n := pointers(p.ProbeHandler); n != 1 {
		v.invalid(at, "", "must have one of exec, httpGet, tcpSocket and grpc, has %d", n)
	}
	for _, number := range []struct {
		name  string
		value int32
	}{
		{"initialDelaySeconds", p.InitialDelaySeconds}, {"timeoutSeconds", p.TimeoutSeconds}, {"periodSeconds", p.PeriodSeconds},
		{"successThreshold", p.SuccessThreshold}, {"failureThreshold", p.FailureThreshold},
	} {
		if number.value < 0 {
			v.invalid(at.Child(number.name), number.value, "must not be negative")
		}
	}
	if grace := p.TerminationGracePeriodSeconds; grace != nil && *grace < 1 {
		v.invalid(at.Child("terminationGracePeriodSeconds"), *grace, "must be at least 1")
	}
}

func (v *validator) handler(c *v1.Container, at *field.Path, h *v1.LifecycleHandler) {
	if h == nil {
		return
	}
	if h.Exec != nil {
		v.command(at.Child("exec", "command"), h.Exec.Command)
	}
	if h.HTTPGet != nil {
		v.httpGet(c, at.Child("httpGet"), h.HTTPGet)
	}
	if h.Sleep != nil {
		if grace := *v.pod.Spec.TerminationGracePeriodSeconds; h.Sleep.Seconds < 0 || h.Sleep.Seconds > grace {
			v.invalid(at.Child("sleep", "seconds"), h.Sleep.Seconds, "must be between 0 and the terminationGracePeriodSeconds of %d", grace)
		}
	}
	v.refuse(h.TCPSocket != nil, at.Child("tcpSocket"), "is no longer supported for hooks")
	if n := pointers(*h); n != 1 {
		v.invalid(at, "", "must have one of exec, httpGet and sleep, has %d", n)
	}
}

func (v *validator) command(at *field.Path, command []string) {
	if len(command) == 0 {
		v.errs = append(v.errs, field.Required(at, ""))
	}
}

func (v *validator) httpGet(c *v1.Container, at *field.Path, h *v1.HTTPGetAction) {
	oneOf(v, at.Child("scheme"), h.Scheme, v1.URISchemeHTTP, v1.URISchemeHTTPS)
	v.port(c, at.Child("port"), h.Port.String())
	for i, header := range h.HTTPHeaders {
		v.text(at.Child("httpHeaders").Index(i).Child("name"), header.Name, validation.IsHTTPHeaderName)
	}
}

// port checks that a value is a port number or the name of a port of the container.
func (v *validator) port(c *v1.Container, at *field.Path, value string) {
	if strings.Trim(value, "0123456789") != "" {
		if !slices.ContainsFunc(c.Ports, func(p v1.ContainerPort) bool { return p.Name == value }) {
			v.invalid(at, value, "must be the name of a port of the container")
		}
		return
	}
	if n, err := strconv.Atoi(value); err != nil || len(validation.IsValidPortNum(n)) > 0 {
		v.invalid(at, value, "must be a port between 1 and 65535")
	}
}
