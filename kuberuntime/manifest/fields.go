package manifest

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// metadataFields can be read by variables and by volumes.
var metadataFields = []string{"metadata.name", "metadata.namespace", "metadata.uid"}

// statusFields are known only once the sandbox runs; only variables can have them.
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

func isEnvField(path string) bool {
	_, _, mapped := MapField(path)
	return mapped || slices.Contains(metadataFields, path) || slices.Contains(statusFields, path)
}

func isVolumeField(path string) bool {
	_, _, mapped := MapField(path)
	return mapped || path == "metadata.labels" || path == "metadata.annotations" || slices.Contains(metadataFields, path)
}

// resourceFields are the resources that a resourceFieldRef can name.
var resourceFields = []string{
	"limits.cpu", "limits.memory", "limits.ephemeral-storage",
	"requests.cpu", "requests.memory", "requests.ephemeral-storage",
}

func (v *validator) resourceField(at *field.Path, ref *v1.ResourceFieldSelector, needContainer bool) {
	if !slices.Contains(resourceFields, ref.Resource) && !strings.HasPrefix(ref.Resource, "limits.hugepages-") && !strings.HasPrefix(ref.Resource, "requests.hugepages-") {
		v.errs = append(v.errs, field.NotSupported(at.Child("resource"), ref.Resource, resourceFields))
	}
	v.divisor(at.Child("divisor"), ref)
	if ref.ContainerName == "" {
		if needContainer {
			v.errs = append(v.errs, field.Required(at.Child("containerName"), ""))
		}
		return
	}
	for _, c := range Containers(v.pod) {
		if c.Name == ref.ContainerName {
			return
		}
	}
	v.invalid(at.Child("containerName"), ref.ContainerName, "the pod has no such container")
}

// The divisors that an API server takes.
var (
	cpuDivisors  = []string{"1m", "1"}
	byteDivisors = []string{"1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"}
)

func (v *validator) divisor(at *field.Path, ref *v1.ResourceFieldSelector) {
	if ref.Divisor.IsZero() {
		return
	}
	allowed := byteDivisors
	if strings.HasSuffix(ref.Resource, ".cpu") {
		allowed = cpuDivisors
	}
	if !slices.Contains(allowed, ref.Divisor.String()) {
		v.errs = append(v.errs, field.NotSupported(at, ref.Divisor.String(), allowed))
	}
}
