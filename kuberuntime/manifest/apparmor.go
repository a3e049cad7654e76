package manifest

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// annotatedProfile returns the AppArmor profile of an annotation, or nil for an unknown value. Manifests before
// Kubernetes 1.30 use annotations.
func annotatedProfile(value string) *v1.AppArmorProfile {
	name, localhost := strings.CutPrefix(value, v1.DeprecatedAppArmorBetaProfileNamePrefix)
	switch {
	case value == v1.DeprecatedAppArmorBetaProfileRuntimeDefault:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeRuntimeDefault}
	case value == v1.DeprecatedAppArmorBetaProfileNameUnconfined:
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeUnconfined}
	case localhost && name != "":
		return &v1.AppArmorProfile{Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: &name}
	}
	return nil
}

// defaultAppArmor sets a missing AppArmor profile from the container's annotation, as the kubelet does for static pods.
func defaultAppArmor(c *v1.Container, annotations map[string]string) {
	profile := annotatedProfile(annotations[v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix+c.Name])
	if profile == nil {
		return
	}
	setDefault(&c.SecurityContext, &v1.SecurityContext{})
	setDefault(&c.SecurityContext.AppArmorProfile, profile)
}

func (v *validator) appArmorAnnotations(path *field.Path) {
	for _, key := range slices.Sorted(maps.Keys(v.pod.Annotations)) {
		name, ok := strings.CutPrefix(key, v1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix)
		if !ok {
			continue
		}
		at, value := path.Key(key), v.pod.Annotations[key]
		profile, c := annotatedProfile(value), Container(v.pod, name)
		switch {
		case c == nil:
			v.invalid(at, value, "the pod has no such container")
		case profile == nil:
			v.invalid(at, value, "must be runtime/default, unconfined or localhost/PROFILE")
		case !reflect.DeepEqual(profile, c.SecurityContext.AppArmorProfile):
			v.invalid(at, value, "is not the container's securityContext.appArmorProfile")
		}
	}
}
