package kuberuntime

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Replace removes other pods of the same name that apply made. It says
// whether one was, and whether this very pod was there before.
func (m *Manager) Replace(ctx context.Context, p *v1.Pod) (replaced, existed bool, err error) {
	pods, err := m.GetPods(ctx, true)
	if err != nil {
		return false, false, err
	}
	var old []*pod.Pod
	for _, other := range pods {
		if other.Namespace != p.Namespace || other.Name != p.Name {
			continue
		}
		if other.UID == string(p.UID) {
			existed = true
			continue
		}
		switch owner, folder := m.OwnerOf(other); owner {
		case OwnerFolder:
			return false, existed, &ForeignPodError{Name: other.FullName(), UID: other.UID, Owner: "crishim sync " + folder}
		case OwnerOther:
			if !isRunning(other) {
				continue
			}
			return false, existed, &ForeignPodError{Name: other.FullName(), UID: other.UID, Owner: "another tool"}
		}
		old = append(old, other)
	}
	for _, other := range old {
		m.event(p, "", EventKilling, "the manifest has changed: the pod is replaced")
		status, err := m.GetPodStatus(ctx, other.UID, other.Name, other.Namespace)
		if err != nil {
			return false, existed, err
		}
		if err := m.Remove(ctx, nil, status, nil); err != nil {
			return false, existed, fmt.Errorf("replace pod %s: %w", other.FullName(), err)
		}
	}
	return len(old) > 0, existed, nil
}
