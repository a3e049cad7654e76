package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func (v *validator) env(c *v1.Container, at *field.Path) {
	for i, from := range c.EnvFrom {
		here := at.Child("envFrom").Index(i)
		if from.Prefix != "" {
			v.text(here.Child("prefix"), from.Prefix, validation.IsRelaxedEnvVarName)
		}
		switch {
		case (from.ConfigMapRef == nil) == (from.SecretRef == nil):
			v.invalid(here, "", "must have one of configMapRef and secretRef")
		case from.ConfigMapRef != nil:
			v.keys(here.Child("configMapRef", "name"), "ConfigMap", from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
		default:
			v.keys(here.Child("secretRef", "name"), "Secret", from.SecretRef.Name, from.SecretRef.Optional)
		}
	}
	for i, e := range c.Env {
		here := at.Child("env").Index(i)
		if v.required(here.Child("name"), e.Name) {
			v.text(here.Child("name"), e.Name, validation.IsRelaxedEnvVarName)
		}
		if e.ValueFrom == nil {
			continue
		}
		if e.Value != "" {
			v.invalid(here.Child("valueFrom"), "", "cannot be combined with value")
		}
		v.valueFrom(e.ValueFrom, here.Child("valueFrom"))
	}
}

func (v *validator) valueFrom(from *v1.EnvVarSource, at *field.Path) {
	if from.FieldRef != nil && !isMetadataField(from.FieldRef.FieldPath, false) && !slices.Contains(statusFields, from.FieldRef.FieldPath) {
		v.invalid(at.Child("fieldRef", "fieldPath"), from.FieldRef.FieldPath, "must be a field that a variable can have")
	}
	if from.ResourceFieldRef != nil {
		v.resourceField(at.Child("resourceFieldRef"), from.ResourceFieldRef, false)
	}
	keyRef := func(at *field.Path, kind, name, key string, optional *bool) {
		keys := v.keys(at.Child("name"), kind, name, optional)
		if keys == nil || !v.required(at.Child("key"), key) || keys[key] || ptr.Deref(optional, false) {
			return
		}
		if _, binary := keys[key]; binary {
			v.invalid(at.Child("key"), key, "is in binaryData: a variable needs a key of data")
		} else {
			v.invalid(at.Child("key"), key, "there is no such key")
		}
	}
	if ref := from.ConfigMapKeyRef; ref != nil {
		keyRef(at.Child("configMapKeyRef"), "ConfigMap", ref.Name, ref.Key, ref.Optional)
	}
	if ref := from.SecretKeyRef; ref != nil {
		keyRef(at.Child("secretKeyRef"), "Secret", ref.Name, ref.Key, ref.Optional)
	}
	if ref := from.FileKeyRef; ref != nil {
		v.fileKey(ref, at.Child("fileKeyRef"))
	}
	if n := pointers(*from); n != 1 {
		v.invalid(at, "", "must have one source, has %d", n)
	}
}

// fileKey checks a fileKeyRef. Its file is in an emptyDir, where another container writes it.
func (v *validator) fileKey(ref *v1.FileKeySelector, at *field.Path) {
	if v.required(at.Child("volumeName"), ref.VolumeName) && !slices.ContainsFunc(v.pod.Spec.Volumes, func(volume v1.Volume) bool {
		return volume.Name == ref.VolumeName && volume.EmptyDir != nil
	}) {
		v.invalid(at.Child("volumeName"), ref.VolumeName, "must be an emptyDir volume of the pod")
	}
	v.localPath(at.Child("path"), ref.Path)
	const longest = 128
	if v.required(at.Child("key"), ref.Key) {
		v.text(at.Child("key"), ref.Key, validation.IsRelaxedEnvVarName)
	}
	if len(ref.Key) > longest {
		v.errs = append(v.errs, field.TooLong(at.Child("key"), ref.Key, longest))
	}
}

// metadataFields are available to variables and volumes.
var metadataFields = []string{"metadata.name", "metadata.namespace", "metadata.uid"}

// statusFields are available to variables only, as in an API server. The pod's addresses are known only after the sandbox
// has started.
var statusFields = []string{"spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs"}

// MapField splits metadata.labels['app'] into "metadata.labels" and "app".
func MapField(path string) (field, key string, ok bool) {
	for _, name := range []string{"metadata.labels", "metadata.annotations"} {
		rest, found := strings.CutPrefix(path, name+"['")
		if !found {
			continue
		}
		key, closed := strings.CutSuffix(rest, "']")
		return name, key, closed && key != ""
	}
	return "", "", false
}

// isMetadataField reports whether a variable may refer to a field of the metadata. With maps, it reports whether a volume
// may do so: only volumes may refer to all labels or all annotations at once.
func isMetadataField(path string, maps bool) bool {
	_, _, mapped := MapField(path)
	return mapped || slices.Contains(metadataFields, path) || maps && (path == "metadata.labels" || path == "metadata.annotations")
}

var resourceFields = []string{
	"limits.cpu", "limits.memory", "limits.ephemeral-storage",
	"requests.cpu", "requests.memory", "requests.ephemeral-storage",
}

func (v *validator) resourceField(at *field.Path, ref *v1.ResourceFieldSelector, needContainer bool) {
	if !slices.Contains(resourceFields, ref.Resource) && !strings.HasPrefix(ref.Resource, "limits.hugepages-") && !strings.HasPrefix(ref.Resource, "requests.hugepages-") {
		v.errs = append(v.errs, field.NotSupported(at.Child("resource"), ref.Resource, resourceFields))
	}
	if !ref.Divisor.IsZero() {
		allowed := byteDivisors
		if strings.HasSuffix(ref.Resource, ".cpu") {
			allowed = cpuDivisors
		}
		if !slices.Contains(allowed, ref.Divisor.String()) {
			v.errs = append(v.errs, field.NotSupported(at.Child("divisor"), ref.Divisor.String(), allowed))
		}
	}
	if ref.ContainerName == "" {
		if needContainer {
			v.errs = append(v.errs, field.Required(at.Child("containerName"), ""))
		}
		return
	}
	if Container(v.pod, ref.ContainerName) == nil {
		v.invalid(at.Child("containerName"), ref.ContainerName, "the pod has no such container")
	}
}

var (
	cpuDivisors  = []string{"1m", "1"}
	byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)
