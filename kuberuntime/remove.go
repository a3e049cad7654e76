package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	v1 "github.com/crishim/crishim/kuberuntime/corev1"

	"github.com/crishim/crishim/kuberuntime/pod"
)

// Remove ends a pod and removes all that is left of it: containers, sandboxes, logs and
// volumes. Without a manifest (nil) the pod's record or its containers say how to end it.
func (m *Manager) Remove(ctx context.Context, p *v1.Pod, status *pod.Status, grace *int64) error {
	if p == nil {
		if record, err := m.Record(status.UID); err == nil {
			p = record.Pod
		}
	}
	m.prober.Keep(status.UID, nil)
	if err := m.KillPod(ctx, p, status, grace); err != nil {
		return err
	}
	var errs []error
	for _, c := range status.Containers {
		if err := m.DeleteContainer(ctx, c.ID); err != nil {
			errs = append(errs, fmt.Errorf("remove container %s: %w", c.Name, err))
		}
	}
	for _, sandbox := range status.Sandboxes {
		if err := m.service.removePodSandbox(ctx, sandbox.GetId()); err != nil {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", shortID(sandbox.GetId()), err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // its folders may still be in use
	}
	return m.removeFolders(status)
}

// removeFolders removes logs and volumes. A pod that was not made here keeps its logs:
// whoever made it looks after them.
func (m *Manager) removeFolders(status *pod.Status) error {
	if _, err := m.Record(status.UID); errors.Is(err, ErrNoRecord) {
		return nil
	}
	p := &v1.Pod{ObjectMeta: v1.ObjectMeta{Name: status.Name, Namespace: status.Namespace, UID: v1.UID(status.UID)}}
	if err := os.RemoveAll(m.o.Dirs.PodLogs(p)); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	m.removeLinks(status)
	if err := m.volumes.Teardown(status.UID); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	return nil
}

func (m *Manager) removeLinks(status *pod.Status) {
	dir := m.o.Dirs.LegacyLogs
	if dir == "" {
		return
	}
	prefix := status.Name + "_" + status.Namespace + "_"
	names, err := listDir(dir)
	if err != nil {
		return // links only
	}
	for _, name := range names {
		for _, c := range status.Containers {
			if strings.HasPrefix(name, prefix) && name == legacyLogName(status.Name, status.Namespace, c.Name, c.ID) {
				_ = os.Remove(filepath.Join(dir, name)) // garbage collection takes what stays
			}
		}
	}
}
