package manifest

import (
	"fmt"
	"os"
	"reflect"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// refuse lists what a pod asks for and a single host without a control plane cannot give.
// Dropping such a field in silence would run something else than the manifest says.
func refuse(spec *v1.PodSpec, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	no := func(asked bool, name, why string) {
		if asked {
			errs = append(errs, field.Forbidden(path.Child(name), why))
		}
	}
	const scheduler = "needs a scheduler"
	const api = "needs an API server"
	no(len(spec.NodeSelector) > 0, "nodeSelector", scheduler)
	no(spec.Affinity != nil, "affinity", scheduler)
	no(len(spec.TopologySpreadConstraints) > 0, "topologySpreadConstraints", scheduler)
	no(len(spec.SchedulingGates) > 0, "schedulingGates", scheduler)
	no(spec.SchedulingGroup != nil, "schedulingGroup", scheduler)
	no(spec.SchedulerName != "" && spec.SchedulerName != v1.DefaultSchedulerName, "schedulerName", scheduler)
	no(spec.NodeName != "" && spec.NodeName != hostName(), "nodeName", "names another node than this host")
	no(spec.ServiceAccountName != "" && spec.ServiceAccountName != "default", "serviceAccountName", api)
	no(spec.DeprecatedServiceAccount != "" && spec.DeprecatedServiceAccount != "default", "serviceAccount", api)
	no(spec.AutomountServiceAccountToken != nil && *spec.AutomountServiceAccountToken, "automountServiceAccountToken", api)
	no(len(spec.ReadinessGates) > 0, "readinessGates", api)
	no(spec.Resources != nil, "resources", "needs a cgroup for the whole pod; give each container its own")
	no(len(spec.ResourceClaims) > 0, "resourceClaims", "needs a resource driver")
	no(len(spec.EvictionResponders) > 0, "evictionResponders", api)
	no(spec.PriorityClassName != "" && !strings.HasPrefix(spec.PriorityClassName, "system-"), "priorityClassName",
		"needs an API server (system-node-critical and system-cluster-critical are known)")
	no(spec.HostUsers != nil && !*spec.HostUsers, "hostUsers", "user namespaces for each pod are not supported")
	no(spec.OS != nil && spec.OS.Name != v1.Linux, "os", "only linux pods run here")
	no(len(spec.Overhead) > 0 && spec.RuntimeClassName == nil, "overhead", "is set by a RuntimeClass only")
	for i := range spec.Volumes {
		errs = append(errs, refuseVolume(&spec.Volumes[i], path.Child("volumes").Index(i))...)
	}
	return errs
}

// localVolumes are the volume sources that this host can make by itself.
var localVolumes = map[string]bool{
	"hostPath": true, "emptyDir": true, "configMap": true, "secret": true,
	"projected": true, "downwardAPI": true, "image": true,
}

func refuseVolume(volume *v1.Volume, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	sources := reflect.ValueOf(volume.VolumeSource)
	for i := range sources.NumField() {
		name, _, _ := strings.Cut(sources.Type().Field(i).Tag.Get("json"), ",")
		if !localVolumes[name] && !sources.Field(i).IsNil() {
			errs = append(errs, field.Forbidden(path.Child(name), "needs a volume plugin"))
		}
	}
	if volume.Projected == nil {
		return errs
	}
	for i, s := range volume.Projected.Sources {
		at := path.Child("projected", "sources").Index(i)
		for name, asked := range map[string]bool{
			"serviceAccountToken": s.ServiceAccountToken != nil,
			"clusterTrustBundle":  s.ClusterTrustBundle != nil,
			"podCertificate":      s.PodCertificate != nil,
		} {
			if asked {
				errs = append(errs, field.Forbidden(at.Child(name), "needs an API server"))
			}
		}
	}
	return errs
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return fmt.Sprintf("unknown: %v", err)
	}
	return name
}
