package kuberuntime

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/crishim/crishim/internal/kube"
	"github.com/crishim/crishim/kuberuntime/criconfig"
	"github.com/crishim/crishim/kuberuntime/pod"
	"github.com/crishim/crishim/kuberuntime/volume"
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
		if _, err := m.runtime.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: sandbox.GetId()}); err != nil {
			errs = append(errs, fmt.Errorf("remove sandbox %s: %w", shortID(sandbox.GetId()), err))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...) // its folders may still be in use
	}
	return m.removeFolders(status)
}

// ErrRunning is a container that cannot be deleted because it runs.
var ErrRunning = errors.New("the container is running")

// DeleteContainer removes a container that does not run, and before it, so that a failure is made
// good by the next try, its logs. A pod that was not made here keeps its logs.
func (m *Manager) DeleteContainer(ctx context.Context, id string) error {
	resp, err := m.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: id})
	if err != nil {
		return ignoreNotFound(err)
	}
	if resp.GetStatus().GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING {
		return ErrRunning // a runtime would kill it
	}
	if err := m.removeLogs(resp.GetStatus()); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	_, err = m.runtime.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: id})
	return err
}

// removeLogs removes the log of one attempt, what rotation made of it, and its link.
func (m *Manager) removeLogs(c *runtimeapi.ContainerStatus) error {
	record, err := m.Record(c.GetLabels()[kube.LabelPodUID])
	name := c.GetMetadata().GetName()
	if err != nil || record.Endpoint != m.o.Endpoint || name != filepath.Base(name) {
		return nil
	}
	restarts, err := strconv.Atoi(c.GetAnnotations()[pod.RestartCountAnnotation])
	if err != nil {
		return nil // not made by this package
	}
	path := filepath.Join(m.o.Dirs.PodLogs(record.Pod), criconfig.LogPath(name, restarts))
	files, err := rotations(path)
	if err != nil {
		return err
	}
	files = append(files, path)
	if m.o.Dirs.LegacyLogs != "" {
		files = append(files, filepath.Join(m.o.Dirs.LegacyLogs, legacyLogName(record.Pod.Name, record.Pod.Namespace, name, c.GetId())))
	}
	var errs []error
	for _, file := range files {
		if err := os.Remove(file); !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// removeFolders removes logs and volumes. A pod that was not made here keeps its logs:
// its maker looks after them.
func (m *Manager) removeFolders(status *pod.Status) error {
	record, err := m.Record(status.UID)
	if errors.Is(err, ErrNoRecord) {
		return nil
	}
	if err != nil {
		return err
	}
	// By the names in the record: the runtime's may be another tool's, which are any text.
	if err := volume.RemoveAll(m.o.Dirs.PodLogs(record.Pod)); err != nil {
		return fmt.Errorf("remove logs: %w", err)
	}
	if err := m.volumes.Teardown(status.UID); err != nil {
		return fmt.Errorf("remove volumes: %w", err)
	}
	return nil
}

// Replace removes other pods of the same name that apply made. It reports
// whether there was one, and whether this very pod was there before.
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
		switch owner := m.OwnerOf(other); {
		case owner.Apply:
			old = append(old, other)
		case owner.Folder != "" || isRunning(other):
			return false, existed, &ForeignPodError{Name: other.FullName(), UID: other.UID, Owner: owner}
		}
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
