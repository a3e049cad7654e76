package criconfig

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"
)

// ImageUser is the user of an image: a uid, or a name that only the runtime can resolve.
type ImageUser struct {
	UID  *int64
	Name string
}

// verifyNonRoot returns an error for a container with runAsNonRoot that would run as root or as an unknown user, like
// the kubelet's verifyRunAsNonRoot.
func verifyNonRoot(p *v1.Pod, c *v1.Container, image ImageUser) error {
	sc := effective(p, c)
	if !ptr.Deref(sc.RunAsNonRoot, false) {
		return nil
	}
	switch {
	case sc.RunAsUser != nil && *sc.RunAsUser == 0:
		return fmt.Errorf("container %s has runAsNonRoot and runAsUser 0", c.Name)
	case sc.RunAsUser != nil, image.UID != nil && *image.UID != 0:
		return nil
	case image.UID == nil && image.Name != "":
		return fmt.Errorf("container %s has runAsNonRoot, and its image's user %q is no number: set runAsUser", c.Name, image.Name)
	}
	return fmt.Errorf("container %s has runAsNonRoot, and its image runs as root", c.Name)
}

// effective merges the pod's security context into a container's, like the kubelet's DetermineEffectiveSecurityContext.
func effective(p *v1.Pod, c *v1.Container) *v1.SecurityContext {
	sc := &v1.SecurityContext{}
	if c.SecurityContext != nil {
		sc = c.SecurityContext.DeepCopy()
	}
	of := p.Spec.SecurityContext // never nil after defaulting
	sc.SELinuxOptions = cmp.Or(sc.SELinuxOptions, of.SELinuxOptions)
	sc.RunAsUser = cmp.Or(sc.RunAsUser, of.RunAsUser)
	sc.RunAsGroup = cmp.Or(sc.RunAsGroup, of.RunAsGroup)
	sc.RunAsNonRoot = cmp.Or(sc.RunAsNonRoot, of.RunAsNonRoot)
	sc.SeccompProfile = cmp.Or(sc.SeccompProfile, of.SeccompProfile)
	sc.AppArmorProfile = cmp.Or(sc.AppArmorProfile, of.AppArmorProfile)
	return sc
}

func (g *Generator) containerSecurity(p *v1.Pod, c *v1.Container, image ImageUser, targetID string) *runtimeapi.LinuxContainerSecurityContext {
	sc := effective(p, c)
	out := &runtimeapi.LinuxContainerSecurityContext{
		Privileged:       ptr.Deref(sc.Privileged, false),
		ReadonlyRootfs:   ptr.Deref(sc.ReadOnlyRootFilesystem, false),
		NoNewPrivs:       !ptr.Deref(sc.AllowPrivilegeEscalation, true),
		NamespaceOptions: namespaces(p),
		SelinuxOptions:   selinux(sc.SELinuxOptions),
		RunAsUser:        int64Value(sc.RunAsUser),
		RunAsGroup:       int64Value(sc.RunAsGroup),
		Seccomp:          g.seccomp(sc.SeccompProfile, ptr.Deref(sc.Privileged, false)),
		Apparmor:         appArmor(sc.AppArmorProfile, ptr.Deref(sc.Privileged, false)),
	}
	if targetID != "" {
		out.NamespaceOptions.Pid, out.NamespaceOptions.TargetId = runtimeapi.NamespaceMode_TARGET, targetID
	}
	// The CRI accepts a group only together with a user. Without runAsUser, it gets the user of the image, or else root.
	if out.RunAsGroup != nil && out.RunAsUser == nil {
		out.RunAsUser, out.RunAsUsername = int64Value(image.UID), image.Name
		if out.RunAsUser != nil {
			out.RunAsUsername = ""
		} else if out.RunAsUsername == "" {
			out.RunAsUser = &runtimeapi.Int64Value{}
		}
	}
	if caps := sc.Capabilities; caps != nil {
		out.Capabilities = &runtimeapi.Capability{}
		for _, name := range caps.Add {
			out.Capabilities.AddCapabilities = append(out.Capabilities.AddCapabilities, string(name))
		}
		for _, name := range caps.Drop {
			out.Capabilities.DropCapabilities = append(out.Capabilities.DropCapabilities, string(name))
		}
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(p)
	if ptr.Deref(sc.ProcMount, v1.DefaultProcMount) != v1.UnmaskedProcMount && !out.Privileged {
		out.MaskedPaths, out.ReadonlyPaths = maskedPaths, readonlyPaths
	}
	return out
}

// sandboxSecurity returns the CRI security context of a sandbox. The sandbox runs the runtime's pause process, so it
// always gets the runtime's default seccomp profile.
func sandboxSecurity(p *v1.Pod) *runtimeapi.LinuxSandboxSecurityContext {
	sc := p.Spec.SecurityContext
	out := &runtimeapi.LinuxSandboxSecurityContext{
		NamespaceOptions: namespaces(p),
		SelinuxOptions:   selinux(sc.SELinuxOptions),
		Privileged: slices.ContainsFunc(slices.Concat(p.Spec.InitContainers, p.Spec.Containers), func(c v1.Container) bool {
			return c.SecurityContext != nil && ptr.Deref(c.SecurityContext.Privileged, false)
		}),
		Seccomp: &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
	}
	if sc.RunAsUser != nil {
		out.RunAsUser, out.RunAsGroup = int64Value(sc.RunAsUser), int64Value(sc.RunAsGroup)
	}
	out.SupplementalGroups, out.SupplementalGroupsPolicy = groups(p)
	return out
}

func groups(p *v1.Pod) ([]int64, runtimeapi.SupplementalGroupsPolicy) {
	sc := p.Spec.SecurityContext
	list := slices.Clone(sc.SupplementalGroups)
	if sc.FSGroup != nil && !slices.Contains(list, *sc.FSGroup) {
		list = append(list, *sc.FSGroup)
	}
	if ptr.Deref(sc.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge) == v1.SupplementalGroupsPolicyStrict {
		return list, runtimeapi.SupplementalGroupsPolicy_Strict
	}
	return list, runtimeapi.SupplementalGroupsPolicy_Merge
}

func namespaces(p *v1.Pod) *runtimeapi.NamespaceOption {
	out := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if p.Spec.HostNetwork {
		out.Network = runtimeapi.NamespaceMode_NODE
	}
	if p.Spec.HostIPC {
		out.Ipc = runtimeapi.NamespaceMode_NODE
	}
	switch {
	case p.Spec.HostPID:
		out.Pid = runtimeapi.NamespaceMode_NODE
	case ptr.Deref(p.Spec.ShareProcessNamespace, false):
		out.Pid = runtimeapi.NamespaceMode_POD
	}
	return out
}

// seccomp returns RuntimeDefault for a nil profile, as with the kubelet's seccompDefault. A privileged container with a
// nil profile is unconfined.
func (g *Generator) seccomp(p *v1.SeccompProfile, privileged bool) *runtimeapi.SecurityProfile {
	if p != nil {
		return profile(string(p.Type), filepath.Join(g.Dirs.Seccomp(), ptr.Deref(p.LocalhostProfile, "")))
	}
	if privileged {
		return profile("Unconfined", "")
	}
	return profile("RuntimeDefault", "")
}

// appArmor returns nil for a nil profile. The runtime then uses its default profile. A privileged container with a nil
// profile is unconfined.
func appArmor(p *v1.AppArmorProfile, privileged bool) *runtimeapi.SecurityProfile {
	if p != nil {
		return profile(string(p.Type), ptr.Deref(p.LocalhostProfile, ""))
	}
	if privileged {
		return profile("Unconfined", "")
	}
	return nil
}

// profile returns a seccomp or AppArmor profile. Manifests and the CRI use the same names for the types.
func profile(kind, localhost string) *runtimeapi.SecurityProfile {
	out := &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_ProfileType(runtimeapi.SecurityProfile_ProfileType_value[kind])}
	if out.ProfileType == runtimeapi.SecurityProfile_Localhost {
		out.LocalhostRef = localhost
	}
	return out
}

func selinux(o *v1.SELinuxOptions) *runtimeapi.SELinuxOption {
	if o == nil {
		return nil
	}
	return &runtimeapi.SELinuxOption{User: o.User, Role: o.Role, Type: o.Type, Level: o.Level}
}

func int64Value(v *int64) *runtimeapi.Int64Value {
	if v == nil {
		return nil
	}
	return &runtimeapi.Int64Value{Value: *v}
}

// Kernel paths that are masked or read-only in unprivileged containers, unless procMount is Unmasked.
var (
	maskedPaths = []string{
		"/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list",
		"/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware", "/sys/devices/virtual/powercap",
	}
	readonlyPaths = []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"}
)
