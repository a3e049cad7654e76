package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
)

// TestAppArmorAnnotations: an annotation sets the profile of its container. The field takes precedence.
func TestAppArmorAnnotations(t *testing.T) {
	t.Parallel()
	set, err := parse(`
apiVersion: v1
kind: Pod
metadata:
  name: web
  annotations:
    container.apparmor.security.beta.kubernetes.io/i: unconfined
    container.apparmor.security.beta.kubernetes.io/a: localhost/mine
    container.apparmor.security.beta.kubernetes.io/b: runtime/default
spec:
  securityContext: {appArmorProfile: {type: Unconfined}}
  initContainers: [{name: i, image: busybox}]
  containers:
  - {name: a, image: busybox}
  - {name: b, image: busybox, securityContext: {appArmorProfile: {type: RuntimeDefault}}}
  - {name: c, image: busybox}
`)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]*v1.AppArmorProfile{}
	for _, c := range Containers(set.Pods[0].Pod) {
		if c.SecurityContext != nil {
			got[c.Name] = c.SecurityContext.AppArmorProfile
		}
	}
	want := map[string]*v1.AppArmorProfile{
		"i": {Type: v1.AppArmorProfileTypeUnconfined}, "a": {Type: v1.AppArmorProfileTypeLocalhost, LocalhostProfile: new("mine")},
		"b": {Type: v1.AppArmorProfileTypeRuntimeDefault},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
