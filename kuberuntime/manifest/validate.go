package manifest

import (
	"fmt"
	"maps"
	"math"
	"net"
	"os"
	"reflect"
	"runtime"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/internal/lazyregexp"
)

// Validate checks a defaulted pod. It refuses fields that an API server would refuse, fields that need a control plane
// or a volume plugin, and references to objects missing from the set.
func Validate(pod *v1.Pod, set *Set) field.ErrorList {
	v := &validator{pod: pod, set: set}
	v.metadata(field.NewPath("metadata"))
	if set.options.NamesOnly {
		return v.errs
	}
	spec := field.NewPath("spec")
	v.refused(spec)
	v.node(spec)
	v.spec(spec)
	v.volumes(spec.Child("volumes"))
	v.containers(spec)
	return v.errs
}

type validator struct {
	pod  *v1.Pod
	set  *Set
	errs field.ErrorList
}

func (v *validator) invalid(path *field.Path, value any, format string, args ...any) {
	v.errs = append(v.errs, field.Invalid(path, value, fmt.Sprintf(format, args...)))
}

func (v *validator) required(path *field.Path, value string) bool {
	if value == "" {
		v.errs = append(v.errs, field.Required(path, ""))
		return false
	}
	return true
}

func (v *validator) text(path *field.Path, value string, check func(string) []string) {
	for _, msg := range check(value) {
		v.invalid(path, value, "%s", msg)
	}
}

// refuse adds a Forbidden error if a field is set that is not supported.
func (v *validator) refuse(asked bool, path *field.Path, why string) {
	if asked {
		v.errs = append(v.errs, field.Forbidden(path, why))
	}
}

func (v *validator) unique(path *field.Path, seen map[string]bool, name string) {
	if seen[name] {
		v.errs = append(v.errs, field.Duplicate(path, name))
	}
	seen[name] = true
}

// pointers counts the non-nil fields of a struct of pointers.
func pointers(sources any) int {
	n := 0
	for _, source := range reflect.ValueOf(sources).Fields() {
		if !source.IsNil() {
			n++
		}
	}
	return n
}

func oneOf[T ~string](v *validator, path *field.Path, value T, allowed ...T) {
	if !slices.Contains(allowed, value) {
		v.errs = append(v.errs, field.NotSupported(path, value, allowed))
	}
}

const maxAnnotations = 256 << 10

func (v *validator) metadata(path *field.Path) {
	meta := v.pod.ObjectMeta
	if v.required(path.Child("name"), meta.Name) {
		v.text(path.Child("name"), meta.Name, validation.IsDNS1123Subdomain)
	}
	v.text(path.Child("namespace"), meta.Namespace, validation.IsDNS1123Label)
	const fileName, uid = 255, 36
	if over := len(meta.Namespace) + len(meta.Name) + len("__") + uid - fileName; over > 0 {
		v.invalid(path.Child("name"), meta.Name, "must be shorter by %d characters: a directory is named after namespace, name and uid", over)
	}
	for _, key := range slices.Sorted(maps.Keys(meta.Labels)) {
		v.text(path.Child("labels"), key, validation.IsQualifiedName)
		v.text(path.Child("labels").Key(key), meta.Labels[key], validation.IsValidLabelValue)
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(meta.Annotations)) {
		v.text(path.Child("annotations"), strings.ToLower(key), validation.IsQualifiedName)
		size += len(key) + len(meta.Annotations[key])
	}
	for _, key := range []string{kube.AnnotationIngress, kube.AnnotationEgress} {
		if _, err := kube.Bandwidth(meta.Annotations, key); err != nil {
			v.invalid(path.Child("annotations").Key(key), meta.Annotations[key], "must be a quantity from 1k to 1P")
		}
	}
	if size > maxAnnotations {
		v.errs = append(v.errs, field.TooLong(path.Child("annotations"), "", maxAnnotations))
	}
	v.appArmorAnnotations(path.Child("annotations"))
}

func (v *validator) spec(path *field.Path) {
	spec := &v.pod.Spec
	oneOf(v, path.Child("restartPolicy"), spec.RestartPolicy, v1.RestartPolicyAlways, v1.RestartPolicyOnFailure, v1.RestartPolicyNever)
	oneOf(v, path.Child("dnsPolicy"), spec.DNSPolicy, v1.DNSClusterFirst, v1.DNSClusterFirstWithHostNet, v1.DNSDefault, v1.DNSNone)
	v.dns(path)
	if g := *spec.TerminationGracePeriodSeconds; g < 0 {
		v.invalid(path.Child("terminationGracePeriodSeconds"), g, "must not be negative")
	}
	if d := spec.ActiveDeadlineSeconds; d != nil && *d < 1 {
		v.invalid(path.Child("activeDeadlineSeconds"), *d, "must be at least 1")
	}
	if spec.Hostname != "" {
		v.text(path.Child("hostname"), spec.Hostname, validation.IsDNS1123Label)
	}
	if spec.Subdomain != "" {
		v.text(path.Child("subdomain"), spec.Subdomain, validation.IsDNS1123Label)
	}
	if spec.HostnameOverride != nil {
		const longest = 64
		at, name := path.Child("hostnameOverride"), *spec.HostnameOverride
		v.text(at, name, validation.IsDNS1123Subdomain)
		if len(name) > longest {
			v.errs = append(v.errs, field.TooLong(at, name, longest))
		}
		v.refuse(spec.HostNetwork || ptr.Deref(spec.SetHostnameAsFQDN, false), at, "cannot be combined with hostNetwork or setHostnameAsFQDN")
	}
	if spec.HostPID && ptr.Deref(spec.ShareProcessNamespace, false) {
		v.invalid(path.Child("shareProcessNamespace"), true, "cannot be combined with hostPID")
	}
	for i, alias := range spec.HostAliases {
		v.ip(path.Child("hostAliases").Index(i).Child("ip"), alias.IP)
		for j, name := range alias.Hostnames {
			v.text(path.Child("hostAliases").Index(i).Child("hostnames").Index(j), name, validation.IsDNS1123Subdomain)
		}
	}
	if spec.RuntimeClassName != nil && v.set.RuntimeClasses[*spec.RuntimeClassName] == nil {
		v.invalid(path.Child("runtimeClassName"), *spec.RuntimeClassName, "no RuntimeClass of this name is in the input")
	}
	v.podResources(path.Child("resources"))
	v.pullSecrets(path.Child("imagePullSecrets"))
	v.podSecurity(path.Child("securityContext"))
}

// refused reports fields that need a control plane or do not fit this host, such as the nodeName of another host.
// Ignoring them silently would run a different pod than the manifest describes.
func (v *validator) refused(path *field.Path) {
	spec := &v.pod.Spec
	no := func(asked bool, name, why string) { v.refuse(asked, path.Child(name), why) }
	const scheduler = "needs a scheduler"
	const api = "needs an API server"
	for i, c := range spec.TopologySpreadConstraints {
		v.refuse(c.WhenUnsatisfiable != v1.ScheduleAnyway, path.Child("topologySpreadConstraints").Index(i), scheduler+" unless it is ScheduleAnyway")
	}
	no(len(spec.SchedulingGates) > 0, "schedulingGates", scheduler)
	no(spec.SchedulingGroup != nil, "schedulingGroup", scheduler)
	no(spec.SchedulerName != "" && spec.SchedulerName != v1.DefaultSchedulerName, "schedulerName", scheduler)
	if host, err := os.Hostname(); spec.NodeName != "" {
		no(err != nil || spec.NodeName != strings.ToLower(host), "nodeName", "names another node than this host")
	}
	no(len(spec.ReadinessGates) > 0, "readinessGates", api)
	no(len(spec.ResourceClaims) > 0, "resourceClaims", "needs a resource driver")
	no(len(spec.EvictionResponders) > 0, "evictionResponders", api)
	no(!ptr.Deref(spec.HostUsers, true) && (spec.HostNetwork || spec.HostPID || spec.HostIPC), "hostUsers",
		"false cannot be combined with hostNetwork, hostPID or hostIPC")
	no(spec.OS != nil && spec.OS.Name != v1.Linux, "os", "only linux pods run here")
	no(len(spec.Overhead) > 0 && spec.RuntimeClassName == nil, "overhead", "is set by a RuntimeClass only")
}

// node checks a pod's nodeSelector and required node affinity against this node. It ignores preferences and pod
// affinity, because only a scheduler with several nodes can honour them.
func (v *validator) node(path *field.Path) {
	spec := &v.pod.Spec
	name, _ := os.Hostname()
	name = strings.ToLower(name)
	own := labels.Set{
		v1.LabelHostname: name, v1.LabelOSStable: runtime.GOOS, v1.LabelArchStable: runtime.GOARCH,
		"beta.kubernetes.io/os": runtime.GOOS, "beta.kubernetes.io/arch": runtime.GOARCH,
	}
	maps.Copy(own, v.set.options.NodeLabels)
	for _, key := range slices.Sorted(maps.Keys(spec.NodeSelector)) {
		if at := path.Child("nodeSelector").Key(key); !own.Has(key) {
			v.invalid(at, spec.NodeSelector[key], "this node has no such label, unless --node-labels says so")
		} else if own[key] != spec.NodeSelector[key] {
			v.invalid(at, spec.NodeSelector[key], "this node has %s", own[key])
		}
	}
	if spec.Affinity == nil || spec.Affinity.NodeAffinity == nil || spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	matches := func(terms []v1.NodeSelectorRequirement, own labels.Set) bool {
		return !slices.ContainsFunc(terms, func(r v1.NodeSelectorRequirement) bool {
			operator := strings.ToLower(string(r.Operator))
			if r.Operator == v1.NodeSelectorOpDoesNotExist {
				operator = string(selection.DoesNotExist)
			}
			requirement, err := labels.NewRequirement(r.Key, selection.Operator(operator), r.Values)
			return err != nil || !requirement.Matches(own)
		})
	}
	terms := spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	v.refuse(!slices.ContainsFunc(terms, func(t v1.NodeSelectorTerm) bool {
		return len(t.MatchExpressions)+len(t.MatchFields) > 0 && matches(t.MatchExpressions, own) && matches(t.MatchFields, labels.Set{"metadata.name": name})
	}), path.Child("affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"), "this node does not match: it has "+own.String())
}

func (v *validator) dns(path *field.Path) {
	spec := &v.pod.Spec
	if spec.DNSPolicy == v1.DNSNone && (spec.DNSConfig == nil || len(spec.DNSConfig.Nameservers) == 0) {
		v.errs = append(v.errs, field.Required(path.Child("dnsConfig", "nameservers"), "dnsPolicy None needs a nameserver"))
	}
	if spec.DNSConfig == nil {
		return
	}
	at := path.Child("dnsConfig")
	for i, ns := range spec.DNSConfig.Nameservers {
		v.ip(at.Child("nameservers").Index(i), ns)
	}
	if n := len(spec.DNSConfig.Nameservers); n > 3 {
		v.errs = append(v.errs, field.TooMany(at.Child("nameservers"), n, 3))
	}
	if n := len(spec.DNSConfig.Searches); n > 32 {
		v.errs = append(v.errs, field.TooMany(at.Child("searches"), n, 32))
	}
	for i, search := range spec.DNSConfig.Searches {
		if search != "." {
			v.text(at.Child("searches").Index(i), strings.TrimSuffix(search, "."), validation.IsDNS1123SubdomainWithUnderscore)
		}
	}
	for i, option := range spec.DNSConfig.Options {
		v.required(at.Child("options").Index(i).Child("name"), option.Name)
	}
}

func (v *validator) pullSecrets(path *field.Path) {
	for i, ref := range v.pod.Spec.ImagePullSecrets {
		at := path.Index(i).Child("name")
		if !v.required(at, ref.Name) {
			continue
		}
		secret := v.set.Secrets[key(v.pod.Namespace, ref.Name)]
		switch {
		case secret == nil: // only a warning, because the image may be public
			v.set.noSecret = append(v.set.noSecret, key(v.pod.Namespace, ref.Name))
		case secret.Data[v1.DockerConfigJsonKey] == nil && secret.Data[v1.DockerConfigKey] == nil:
			v.invalid(at, ref.Name, "the Secret has neither %s nor %s", v1.DockerConfigJsonKey, v1.DockerConfigKey)
		}
	}
}

func (v *validator) podSecurity(path *field.Path) {
	sc := v.pod.Spec.SecurityContext
	v.ids(path, sc.RunAsUser, sc.RunAsGroup)
	v.id(path.Child("fsGroup"), sc.FSGroup)
	for i := range sc.SupplementalGroups {
		v.id(path.Child("supplementalGroups").Index(i), &sc.SupplementalGroups[i])
	}
	oneOf(v, path.Child("fsGroupChangePolicy"), ptr.Deref(sc.FSGroupChangePolicy, v1.FSGroupChangeAlways), v1.FSGroupChangeAlways, v1.FSGroupChangeOnRootMismatch)
	v.refuse(sc.WindowsOptions != nil, path.Child("windowsOptions"), "only linux pods run here")
	oneOf(v, path.Child("supplementalGroupsPolicy"), ptr.Deref(sc.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge),
		v1.SupplementalGroupsPolicyMerge, v1.SupplementalGroupsPolicyStrict)
	seen := map[string]bool{}
	for i, sysctl := range sc.Sysctls {
		at := path.Child("sysctls").Index(i).Child("name")
		if !v.required(at, sysctl.Name) {
			continue
		}
		v.unique(at, seen, sysctl.Name)
		// Refuse sysctls that would change the host instead of the pod.
		name := strings.ReplaceAll(sysctl.Name, "/", ".")
		switch {
		case !sysctlName.MatchString(sysctl.Name):
			v.invalid(at, sysctl.Name, "must be the name of a sysctl")
		case v.pod.Spec.HostNetwork && strings.HasPrefix(name, "net."):
			v.invalid(at, name, "cannot be combined with hostNetwork")
		case v.pod.Spec.HostIPC && hostIPCSysctl.MatchString(name):
			v.invalid(at, name, "cannot be combined with hostIPC")
		}
	}
	v.profiles(path, sc.SeccompProfile, sc.AppArmorProfile)
}

// sysctlName matches names of sysctls with dots or slashes. hostIPCSysctl matches the sysctls of the IPC namespace.
var (
	sysctlName    = lazyregexp.New(`^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$`)
	hostIPCSysctl = lazyregexp.New(`^(kernel\.(shm|msg|sem$)|fs\.mqueue\.)`)
)

func (v *validator) ids(path *field.Path, user, group *int64) {
	v.id(path.Child("runAsUser"), user)
	v.id(path.Child("runAsGroup"), group)
}

func (v *validator) id(at *field.Path, id *int64) {
	if id != nil && (*id < 0 || *id > math.MaxInt32) {
		v.invalid(at, *id, "must be between 0 and %d", math.MaxInt32)
	}
}

// profiles checks the seccomp and AppArmor profiles. Seccomp and AppArmor have the same profile types.
func (v *validator) profiles(path *field.Path, seccomp *v1.SeccompProfile, appArmor *v1.AppArmorProfile) {
	check := func(at *field.Path, kind string, localhost *string, what string) {
		oneOf(v, at.Child("type"), kind, "Unconfined", "RuntimeDefault", "Localhost")
		if kind == "Localhost" && ptr.Deref(localhost, "") == "" {
			v.errs = append(v.errs, field.Required(at.Child("localhostProfile"), "type Localhost needs a "+what))
		}
	}
	if seccomp != nil {
		check(path.Child("seccompProfile"), string(seccomp.Type), seccomp.LocalhostProfile, "file")
	}
	if appArmor != nil {
		check(path.Child("appArmorProfile"), string(appArmor.Type), appArmor.LocalhostProfile, "profile")
	}
}

func (v *validator) ip(path *field.Path, value string) {
	if net.ParseIP(value) == nil {
		v.invalid(path, value, "must be an IP address")
	}
}
