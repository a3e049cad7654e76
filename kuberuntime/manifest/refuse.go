package manifest

import (
	"os"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

// refused is what a pod asks for and a single host without a control plane cannot give.
// Dropping such a field in silence would run something else than the manifest says.
func (v *validator) refused(path *field.Path) {
	spec := &v.pod.Spec
	no := func(asked bool, name, why string) { v.refuse(asked, path.Child(name), why) }
	const scheduler = "needs a scheduler"
	const api = "needs an API server"
	no(len(spec.NodeSelector) > 0, "nodeSelector", scheduler)
	no(spec.Affinity != nil, "affinity", scheduler)
	no(len(spec.TopologySpreadConstraints) > 0, "topologySpreadConstraints", scheduler)
	no(len(spec.SchedulingGates) > 0, "schedulingGates", scheduler)
	no(spec.SchedulingGroup != nil, "schedulingGroup", scheduler)
	no(spec.SchedulerName != "" && spec.SchedulerName != v1.DefaultSchedulerName, "schedulerName", scheduler)
	if host, err := os.Hostname(); spec.NodeName != "" {
		no(err != nil || spec.NodeName != host, "nodeName", "names another node than this host")
	}
	no(spec.ServiceAccountName != "" && spec.ServiceAccountName != "default", "serviceAccountName", api)
	no(spec.DeprecatedServiceAccount != "" && spec.DeprecatedServiceAccount != "default", "serviceAccount", api)
	no(ptr.Deref(spec.AutomountServiceAccountToken, false), "automountServiceAccountToken", api)
	no(len(spec.ReadinessGates) > 0, "readinessGates", api)
	no(spec.Resources != nil, "resources", "needs a cgroup for the whole pod; give each container its own")
	no(len(spec.ResourceClaims) > 0, "resourceClaims", "needs a resource driver")
	no(len(spec.EvictionResponders) > 0, "evictionResponders", api)
	no(spec.PriorityClassName != "" && !strings.HasPrefix(spec.PriorityClassName, "system-"), "priorityClassName",
		"needs an API server (system-node-critical and system-cluster-critical are known)")
	no(!ptr.Deref(spec.HostUsers, true), "hostUsers", "user namespaces for each pod are not supported")
	no(spec.OS != nil && spec.OS.Name != v1.Linux, "os", "only linux pods run here")
	no(len(spec.Overhead) > 0 && spec.RuntimeClassName == nil, "overhead", "is set by a RuntimeClass only")
	for i := range spec.Volumes {
		v.refusedVolume(&spec.Volumes[i], path.Child("volumes").Index(i))
	}
}

// localVolumes are the volume sources that this host can make by itself.
var localVolumes = map[string]bool{
	"hostPath": true, "emptyDir": true, "configMap": true, "secret": true,
	"projected": true, "downwardAPI": true, "image": true,
}

func (v *validator) refusedVolume(volume *v1.Volume, path *field.Path) {
	for source, value := range reflect.ValueOf(volume.VolumeSource).Fields() {
		name, _, _ := strings.Cut(source.Tag.Get("json"), ",")
		v.refuse(!localVolumes[name] && !value.IsNil(), path.Child(name), "needs a volume plugin")
	}
	if volume.Projected == nil {
		return
	}
	for i, s := range volume.Projected.Sources {
		at := path.Child("projected", "sources").Index(i)
		v.refuse(s.ServiceAccountToken != nil, at.Child("serviceAccountToken"), "needs an API server")
		v.refuse(s.ClusterTrustBundle != nil, at.Child("clusterTrustBundle"), "needs an API server")
		v.refuse(s.PodCertificate != nil, at.Child("podCertificate"), "needs an API server")
	}
}
