package kuberuntime

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/crishim/crishim/kuberuntime/manifest"
)

// checkFeatures refuses fields of a pod that the runtime would ignore, according to the features of the runtime and of
// the pod's handler in Status. The runtime is asked only for pods with such fields. Runtimes before CRI 1.31 report no
// features.
func (s *syncing) checkFeatures(ctx context.Context) error {
	spec := field.NewPath("spec")
	var needGroups, needUsers, needRecursive []*field.Path
	asks := false
	if ptr.Deref(s.pod.Spec.SecurityContext.SupplementalGroupsPolicy, v1.SupplementalGroupsPolicyMerge) == v1.SupplementalGroupsPolicyStrict {
		needGroups = append(needGroups, spec.Child("securityContext", "supplementalGroupsPolicy"))
	}
	if !ptr.Deref(s.pod.Spec.HostUsers, true) {
		needUsers = append(needUsers, spec.Child("hostUsers"))
	}
	for i, c := range manifest.Containers(s.pod) {
		for j, m := range c.VolumeMounts {
			switch ptr.Deref(m.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled) {
			case v1.RecursiveReadOnlyEnabled:
				needRecursive = append(needRecursive, manifest.ContainerPath(s.pod, i).Child("volumeMounts").Index(j).Child("recursiveReadOnly"))
			case v1.RecursiveReadOnlyIfPossible:
				asks = true
			}
		}
	}
	if !asks && len(needGroups)+len(needUsers)+len(needRecursive) == 0 {
		return nil
	}
	resp, err := s.m.runtime.Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask for the runtime's features: %w", err)
	}
	s.features = featuresOf(resp, s.handler)
	var errs field.ErrorList
	refuse := func(paths []*field.Path, what string) {
		for _, path := range paths {
			errs = append(errs, field.Forbidden(path, s.m.name+" does not say that it has "+what))
		}
	}
	if !resp.GetFeatures().GetSupplementalGroupsPolicy() {
		refuse(needGroups, "the policy Strict")
	}
	if !s.features.GetUserNamespaces() {
		refuse(needUsers, "user namespaces for pods")
	}
	if !s.features.GetRecursiveReadOnlyMounts() {
		refuse(needRecursive, "recursive read-only mounts")
	}
	return errs.ToAggregate()
}

// featuresOf returns the features of a handler, or nil if the runtime does not report them.
func featuresOf(resp *runtimeapi.StatusResponse, handler string) *runtimeapi.RuntimeHandlerFeatures {
	for _, h := range resp.GetRuntimeHandlers() {
		if h.GetName() == handler {
			return h.GetFeatures()
		}
	}
	return nil
}

// possible makes mounts with recursiveReadOnly IfPossible recursively read-only if the runtime supports it. The mounts
// are in the order of the manifest.
func (s *syncing) possible(c *v1.Container, mounts []*runtimeapi.Mount) {
	for i, at := range c.VolumeMounts {
		if ptr.Deref(at.RecursiveReadOnly, v1.RecursiveReadOnlyDisabled) == v1.RecursiveReadOnlyIfPossible {
			mounts[i].RecursiveReadOnly = s.features.GetRecursiveReadOnlyMounts()
		}
	}
}
