package kuberuntime

import (
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Prepare gives a pod of an input its uid and the kubelet's annotations. The pods of a
// folder are others than those of apply, whatever their manifests say.
func Prepare(p *v1.Pod, folder string, now time.Time) error {
	if folder != "" {
		p.UID = types.UID("folder " + folder + " " + string(p.UID))
	}
	uid, err := pod.UID(p)
	if err != nil {
		return err
	}
	p.UID = uid
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	p.Annotations[pod.ConfigSeenAnnotation] = now.UTC().Format(time.RFC3339Nano)
	p.Annotations[pod.ConfigSourceAnnotation] = "api"
	if folder != "" {
		p.Annotations[pod.ConfigSourceAnnotation] = "file"
		p.Annotations[pod.ConfigHashAnnotation] = string(uid)
		p.Annotations[pod.FolderAnnotation] = folder
	}
	return nil
}

// Owner says who made a pod.
type Owner int

// The owners.
const (
	OwnerOther  Owner = iota // a kubelet, crictl, another tool
	OwnerApply               // Up, on this host and runtime
	OwnerFolder              // Loop, of the folder that OwnerOf returns
)

// OwnerOf tells from a pod's annotations and its record who made it.
func (m *Manager) OwnerOf(p *pod.Pod) (Owner, string) {
	for _, s := range p.Sandboxes {
		if folder := s.GetAnnotations()[pod.FolderAnnotation]; folder != "" {
			return OwnerFolder, folder
		}
	}
	if record, err := m.Record(p.UID); err == nil && record.Endpoint == m.o.Endpoint {
		if folder := record.Pod.Annotations[pod.FolderAnnotation]; folder != "" {
			return OwnerFolder, folder // its sandboxes are gone
		}
		return OwnerApply, ""
	}
	return OwnerOther, ""
}

// ForeignPodError is a pod of the same name that somebody else made.
type ForeignPodError struct{ Name, UID, Owner string }

func (e *ForeignPodError) Error() string {
	return fmt.Sprintf("a pod %s that %s made is there already (uid %s)", e.Name, e.Owner, e.UID)
}
